#!/usr/bin/env python3
"""Checks that the arrows between the folders of src/ go one way (ARCHITECTURE.md), from the #include lines and the link lists.

    tools/check_layers.py [ROOT]

Prints one line for each violation and exits 1, or one line and exits 0. Needs only Python's standard library.
"""

import re
import sys
from pathlib import Path

# What a folder's files may include besides their own folder. Along apps -> cli -> server -> engine -> model -> kernels -> core
# and cli -> load -> engine a folder sees everything below it; the other arrows are as listed.
ARROWS = {
    "core": [],
    "io": ["core"],
    "jinja": ["core"],
    "text": ["jinja", "io", "core"],
    "grammar": ["io", "core"],
    "parsers": ["grammar", "io", "core"],
    "ranks": ["core"],
    "kernels": ["ranks", "core"],
    "kernels/cpu": ["kernels", "ranks", "core"],
    "kernels/cuda": ["kernels", "ranks", "core"],
    "plan": ["kernels", "core"],
    "model": ["io", "kernels", "ranks", "core"],
    "engine": ["model", "plan", "grammar", "kernels", "ranks", "core"],
    "load": ["engine", "model", "plan", "parsers", "grammar", "kernels", "ranks", "core", "text", "jinja", "io"],
    "server": ["engine", "model", "plan", "parsers", "grammar", "kernels", "ranks", "core", "text", "jinja", "io", "web"],
    "cli": [
        "server",
        "load",
        "engine",
        "model",
        "plan",
        "parsers",
        "grammar",
        "kernels",
        "ranks",
        "core",
        "text",
        "jinja",
        "io",
    ],
    "apps": [
        "cli",
        "server",
        "load",
        "engine",
        "model",
        "plan",
        "parsers",
        "grammar",
        "kernels",
        "ranks",
        "core",
        "text",
        "jinja",
        "io",
        "web",
    ],
    "bench": [
        "cli",
        "server",
        "load",
        "engine",
        "model",
        "plan",
        "parsers",
        "grammar",
        "kernels",
        "ranks",
        "core",
        "text",
        "jinja",
        "io",
    ],
    "web": [],
}

# Third-party code and language extensions that few files may see: (pattern on a line, files, why).
SEAMS = [
    (r"#\s*pragma\s+omp|#\s*include\s*<omp\.h>", r"kernels/cpu/onednn\.cpp", "OpenMP belongs to kernels/cpu/onednn.cpp"),
    (r"#\s*include\s*<(oneapi/)?dnnl", r"kernels/cpu/onednn\.cpp", "oneDNN belongs to kernels/cpu/onednn.cpp"),
    (r"#\s*include\s*<hwy/", r"kernels/cpu/.*", "Highway belongs to kernels/cpu"),
    (r"#\s*include\s*<\w*intrin\.h>", r"kernels/cpu/.*", "intrinsics belong to kernels/cpu"),
    (r"#\s*include\s*<(cuda|cublas|cub/|nccl)", r"kernels/cuda/.*", "CUDA belongs to kernels/cuda"),
    (r"#\s*include\s*<nlohmann/", r"io/json\.(h|cpp)", "nlohmann-json belongs to io/json, where its exceptions are caught"),
    (
        r"#\s*include\s*<curl/",
        r"io/http_client\.cpp|bench/http/http_streams\.cpp",
        "libcurl belongs to io/http_client and bench/http/http_streams",
    ),
    (r"#\s*include\s*<pcre2", r"text/.*", "PCRE2 belongs to text"),
    (r"#\s*include\s*<sentencepiece", r"text/.*", "SentencePiece belongs to text"),
    (r"#\s*include\s*<boost/beast", r"server/http\w*\.(h|cpp)", "Boost.Beast belongs to server/http*"),
    (r"#\s*include\s*<boost/(?!beast)", r"server/.*|ranks/.*", "Boost belongs to server and ranks"),
    (r"#\s*include\s*<prometheus/", r"server/.*", "prometheus-cpp belongs to server"),
    (r"#\s*include\s*<openssl/", r"server/.*|io/checksum\.cpp", "OpenSSL belongs to server and io/checksum"),
    (r"#\s*include\s*<zmq", r"server/kv_event_publisher\.cpp", "ZeroMQ belongs to server/kv_event_publisher"),
    (r"#\s*include\s*<histedit", r"apps/line_reader\.cpp", "libedit belongs to apps/line_reader"),
    (r"#\s*include\s*<CLI/", r"(apps|bench|cli)/.*", "CLI11 belongs to apps, bench and cli"),
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
    violations = [violation for path in paths for violation in check_file(src, path)] + list(check_links(src))
    for violation in violations:
        print(violation)
    if violations:
        print(f"check_layers: {len(violations)} violations in {len(paths)} files")
        return 1
    print(f"check_layers: {len(paths)} files, every arrow points down")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
