#!/usr/bin/env python3
"""Checks that the arrows between the folders of src/ go one way (ARCHITECTURE.md), from the #include lines and the link lists; and
that no folder holds more files than a reader can take in.

    tools/check_layers.py [ROOT]

Prints one line for each violation and exits 1, or one line and exits 0. Needs only Python's standard library.
"""

import re
import sys
from pathlib import Path

# What a folder's files may include besides their own folder. An arrow that no file uses is an error: it goes.
ARROWS = {
    "core": [],
    "io": ["core"],
    "jinja": ["core"],
    "text": ["jinja", "io", "core"],
    "grammar": ["io", "core"],
    "parsers": ["grammar", "io", "core"],
    "ranks": ["core"],
    "kernels": ["core"],
    "kernels/cpu": ["kernels", "ranks", "core"],
    "kernels/cuda": ["kernels", "ranks", "core"],
    "plan": ["kernels", "core"],
    "model": ["io", "kernels", "core"],
    "engine": ["model", "plan", "grammar", "kernels", "ranks", "core"],
    "load": ["engine", "model", "parsers", "kernels", "ranks", "core", "text", "io"],
    "server": ["engine", "parsers", "grammar", "core", "text", "io", "web"],
    "cli": ["server", "load", "engine", "parsers", "kernels", "ranks", "core", "io"],
    "apps": ["cli", "server", "load", "engine", "model", "parsers", "kernels", "ranks", "core", "text", "io", "web"],
    "bench": ["cli", "server", "load", "engine", "model", "plan", "grammar", "kernels", "ranks", "core", "text", "io"],
    "web": [],
}

# Folders inside a folder of ARROWS, its rooms: what each may include of the others, as above. "" is the folder itself.
ROOMS = {
    "core": {"": [], "limits": [""]},
    "text": {
        "tables": [],
        "template": [],
        "split": ["tables"],
        "models": ["split"],
        "tokenizer": ["split", "models", "template"],
    },
    "grammar": {
        "automaton": [],
        "ebnf": ["automaton"],
        "schema": ["automaton", "ebnf"],
        "front": ["automaton", "ebnf", "schema"],
        "match": ["automaton"],
        "": ["automaton", "ebnf", "schema", "front", "match"],
    },
    "kernels/cuda": {
        "device": [],
        "kv": ["device"],
        "rows": ["device", "kv"],
        "gemm": ["device"],
        "heads": ["device"],
        "schemes": ["device", "gemm"],
        "schemes/stream": ["schemes", "device", "gemm"],
        "schemes/wide": ["schemes", "device", "gemm"],
        "experts": ["device", "gemm", "schemes"],
        "sampling": ["device"],
        "states": ["device", "rows"],
        "ranks": ["device"],
        "attention": ["device"],
        "attention/general": ["attention", "device"],
        "attention/wide": ["attention", "device"],
        "attention/latent": ["attention", "attention/wide", "device"],
        "attention/invariant": ["attention", "attention/general", "attention/wide", "attention/latent", "device"],
        "attention/merge": ["attention", "attention/invariant", "device"],
        "": [
            "attention",
            "attention/wide",
            "attention/latent",
            "attention/invariant",
            "attention/merge",
            "device",
            "experts",
            "gemm",
            "heads",
            "kv",
            "ranks",
            "rows",
            "sampling",
            "schemes",
            "states",
        ],
    },
    "engine": {
        "request": [],
        "cache": ["request"],
        "schedule": ["cache", "request"],
        "step": ["cache", "request", "schedule"],
        "": ["cache", "request", "schedule", "step"],
    },
    "server": {
        "limits": [],
        "http": ["limits"],
        "request": [],
        "keys": ["http", "limits"],
        "served": ["limits", "request"],
        "prefixes": ["http", "limits", "request", "served"],
        "prompt": ["http", "prefixes", "request", "served"],
        "observe": ["http", "keys", "limits", "prefixes", "served"],
        "answer": ["http", "keys", "limits", "observe", "request"],
        "dialects": ["answer", "http", "keys", "limits", "prefixes", "prompt", "request", "served"],
        "dialects/openai": ["answer", "dialects", "http", "request"],
        "dialects/messages": ["answer", "dialects", "http", "prompt", "request"],
        "dialects/responses": ["answer", "dialects", "http", "limits", "request"],
        "routes": [
            "answer",
            "dialects",
            "dialects/messages",
            "dialects/openai",
            "dialects/responses",
            "http",
            "keys",
            "limits",
            "observe",
            "prefixes",
            "prompt",
            "request",
            "served",
        ],
        "": ["answer", "http", "keys", "limits", "observe", "prefixes", "routes", "served"],
    },
}

# How many files a folder may hold, and why where it is more than MOST_FILES.
MOST_FILES = 24
MORE_FILES = {
    "engine/cache": (26, "the prefix cache: its tree, and what the tree, the pools and the host tier tell each other"),
    "apps": (30, "programs of `baton`, two files each, and what they share"),
    "io": (36, "independent readers and writers, two files each, which hardly include each other"),
    "jinja": (28, "one language: every file knows its values"),
    "parsers": (33, "one small file for each notation of calls"),
    "model": (28, "what a model is, beside its families/ and source/"),
    "model/families": (40, "one file for each family of models; what several share is in llama.h and readers.h"),
    "grammar/automaton": (28, "one theory: regular languages from their texts to the program that runs them"),
    "kernels/cuda/gemm": (29, "matmuls by 16-bit weights: a few files for each GEMM, and what several of them share"),
}

# Third-party code, language extensions and names that few files may see: (pattern on a line, files, why).
SEAMS = [
    (r"#\s*pragma\s+omp|#\s*include\s*<omp\.h>", r"kernels/cpu/gemm/onednn\.cpp", "OpenMP belongs to kernels/cpu/gemm/onednn.cpp"),
    (r"#\s*include\s*<(oneapi/)?dnnl", r"kernels/cpu/gemm/onednn\.cpp", "oneDNN belongs to kernels/cpu/gemm/onednn.cpp"),
    (r"#\s*include\s*<hwy/", r"kernels/cpu/.*", "Highway belongs to kernels/cpu"),
    (r"#\s*include\s*<\w*intrin\.h>", r"kernels/cpu/.*", "intrinsics belong to kernels/cpu"),
    (r"#\s*include\s*<(cuda|cublas|cub/|nccl)", r"kernels/cuda/.*", "CUDA belongs to kernels/cuda"),
    (r"#\s*include\s*<nlohmann/", r"io/json\.(h|cpp)", "nlohmann-json belongs to io/json, where its exceptions are caught"),
    (
        r"#\s*include\s*<curl/",
        r"io/http_client\.cpp|bench/http/http_streams\.cpp",
        "libcurl belongs to io/http_client and bench/http/http_streams",
    ),
    (r"#\s*include\s*<(zlib|zstd)\.h", r"io/content_coding\.cpp", "zlib and zstd belong to io/content_coding"),
    (r"#\s*include\s*<pcre2", r"text/.*", "PCRE2 belongs to text"),
    (r"#\s*include\s*<sentencepiece", r"text/.*", "SentencePiece belongs to text"),
    (r"#\s*include\s*<boost/beast", r"server/http/.*", "Boost.Beast belongs to server/http"),
    (r"#\s*include\s*<boost/(?!beast)", r"server/.*|ranks/.*", "Boost belongs to server and ranks"),
    (r"#\s*include\s*<prometheus/", r"server/.*", "prometheus-cpp belongs to server"),
    (r"#\s*include\s*<openssl/", r"server/.*|io/checksum\.cpp", "OpenSSL belongs to server and io/checksum"),
    (r"#\s*include\s*<zmq", r"server/observe/kv_event_publisher\.cpp", "ZeroMQ belongs to server/observe/kv_event_publisher"),
    (r"#\s*include\s*<histedit", r"apps/line_reader\.cpp", "libedit belongs to apps/line_reader"),
    (r"#\s*include\s*<CLI/", r"(apps|bench|cli)/.*", "CLI11 belongs to apps, bench and cli"),
    (
        r'"[^"]*/v1/(chat|messages|responses)\b',
        r"server/dialects/.*|(apps|bench|cli)/.*",
        "a dialect's path belongs to its Dialect in server/dialects",
    ),
    (r"#\s*include\s*<yaml-cpp/", r"cli/.*", "yaml-cpp belongs to cli"),
    (r"#\s*include\s*<spdlog/", r"core/log\.(h|cpp)", "spdlog belongs to core/log"),
]

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
QUOTED_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
LINKED_LAYERS = re.compile(r"baton_layer\((\w+) LINK ([^)]*)\)")


def layer_of(path):
    """The folder of src/ that a path belongs to ("kernels/cpu" apart from "kernels"), or None."""
    parts = path.split("/")
    for length in (2, 1):
        if "/".join(parts[:length]) in ARROWS and len(parts) > length:
            return "/".join(parts[:length])
    return None


def room_of(layer, path):
    """The room of a path inside its layer: "dialects/messages" of server/dialects/messages/dialect.h, or ""."""
    return path[len(layer) + 1 :].rpartition("/")[0]


def check_room(layer, path, included):
    """What is wrong about an include of a file of the same layer, or None."""
    rooms = ROOMS.get(layer)
    if rooms is None:
        return None
    here, there = room_of(layer, path), room_of(layer, included)
    if here == there or there in rooms.get(here, []):
        return None
    return f"{layer}/{here} may not include {layer}/{there}".replace("/ ", " ").rstrip("/") + f" ({included})"


def check_folders(src, paths):
    """Violations of folders: unknown rooms, rooms that include each other by the table itself, too many files."""
    counts = {}
    for path in paths:
        folder = path.rpartition("/")[0]
        counts[folder] = counts.get(folder, 0) + 1
        layer = layer_of(path)
        if layer in ROOMS and room_of(layer, path) not in ROOMS[layer]:
            yield f"src/{path}:1: is in a room of {layer} that tools/check_layers.py does not know"
    for folder, n_files in sorted(counts.items()):
        most, _ = MORE_FILES.get(folder, (MOST_FILES, ""))
        if n_files > most:
            yield f"src/{folder}: holds {n_files} files of at most {most}"
    for layer, rooms in ROOMS.items():
        for room in rooms:
            path = way_back(rooms, room)
            if path:
                names = " -> ".join(name or layer for name in path)
                yield f"tools/check_layers.py: the rooms of {layer} include each other: {names}"


def way_back(rooms, room):
    """A way along the arrows from a room to itself, or nothing."""
    waiting, seen = [[room]], set()
    while waiting:
        way = waiting.pop()
        for target in rooms.get(way[-1], []):
            if target == room:
                return [*way, target]
            if target not in seen:
                seen.add(target)
                waiting.append([*way, target])
    return []


def check_file(src, path):
    """Violations of one source file; `path` is relative to src/."""
    layer = layer_of(path)
    if layer is None:
        yield f"src/{path}:1: is in no folder that tools/check_layers.py knows"
        return
    for number, line in enumerate((src / path).read_text(encoding="utf-8").splitlines(), start=1):
        for pattern, files, why in SEAMS:
            if re.search(pattern, line) and not re.fullmatch(files, path):
                yield f"src/{path}:{number}: {why}"
        match = QUOTED_INCLUDE.match(line)
        if not match:
            continue
        included = match.group(1)
        target = layer_of(included)
        if target is None or not (src / included).exists():
            yield f'src/{path}:{number}: "{included}" is no header below src/ (third-party headers go in angle brackets)'
        elif target != layer and target not in ARROWS[layer]:
            yield f"src/{path}:{number}: {layer} may not include {target} ({included})"
        elif target == layer:
            wrong = check_room(layer, path, included)
            if wrong:
                yield f"src/{path}:{number}: {wrong}"


def check_use(src, paths):
    """Violations of the tables: allowed arrows that no #include line takes. `src` is the tree that the tables are of."""
    used = set()
    for path in paths:
        layer = layer_of(path)
        for line in (src / path).read_text(encoding="utf-8").splitlines():
            match = QUOTED_INCLUDE.match(line)
            if not match:
                continue
            target = layer_of(match.group(1))
            used.add((layer, target))
            if target == layer:
                used.add((layer, room_of(layer, path), room_of(layer, match.group(1))))
    for layer, targets in ARROWS.items():
        for target in targets:
            if (layer, target) not in used:
                yield f"tools/check_layers.py: no file of {layer} includes {target}, which ARROWS allows"
    for layer, rooms in ROOMS.items():
        for room, targets in rooms.items():
            for target in targets:
                if (layer, room, target) not in used:
                    where = f"{layer}/{room}".rstrip("/")
                    yield f"tools/check_layers.py: no file of {where} includes {layer}/{target}, which ROOMS allows"


def check_links(src):
    """Violations in the link lists of src/CMakeLists.txt."""
    lists = src / "CMakeLists.txt"
    if not lists.exists():
        return
    for number, line in enumerate(lists.read_text(encoding="utf-8").splitlines(), start=1):
        match = LINKED_LAYERS.search(line)
        if not match:
            continue
        layer = match.group(1)
        for target in re.findall(r"\bbaton_(\w+)", match.group(2)):
            # The library baton_kernels holds core too, so everyone may link it; what may be included is checked above.
            if target != "kernels" and target not in ARROWS.get(layer, []):
                yield f"src/CMakeLists.txt:{number}: {layer} may not link {target}"


def main(arguments):
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    src = root / "src"
    paths = sorted(p.relative_to(src).as_posix() for p in src.rglob("*") if p.suffix in SUFFIXES)
    if not paths:
        print(f"check_layers: no sources in {src}")
        return 1
    violations = [violation for path in paths for violation in check_file(src, path)]
    violations += [*check_folders(src, paths), *check_links(src)]
    if (root / "tools/check_layers.py").exists():
        violations += check_use(src, paths)
    for violation in violations:
        print(violation)
    if violations:
        print(f"check_layers: {len(violations)} violations in {len(paths)} files")
        return 1
    print(f"check_layers: {len(paths)} files, every arrow points down and is used")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
