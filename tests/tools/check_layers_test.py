"""Proves that tools/check_layers.py can fail: a good tree passes, and each kind of wrong line in it is found."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "tools/check_layers.py"

GOOD = {
    "src/CMakeLists.txt": "baton_layer(engine LINK baton_model baton_kernels)\n",
    "src/core/result.h": "#include <tl/expected.hpp>\n",
    "src/io/json.h": '#include <nlohmann/json.hpp>\n#include "core/result.h"\n',
    "src/jinja/value.h": '#include "core/result.h"\n',
    "src/text/models/bpe.h": '#include "io/json.h"\n#include "jinja/value.h"\n',
    "src/kernels/ops.h": '#include "core/result.h"\n',
    "src/kernels/cpu/gemm/onednn.cpp": '#include <omp.h>\n#include <dnnl.hpp>\n#include "kernels/ops.h"\n',
    "src/model/decoder.h": '#include "io/json.h"\n#include "kernels/ops.h"\n',
    "src/engine/engine.h": '#include "model/decoder.h"\n#include "core/result.h"\n',
    "src/load/load_engine.h": '#include "engine/engine.h"\n#include "text/models/bpe.h"\n#include "io/json.h"\n',
    "src/server/http/parser.h": '#include <boost/beast.hpp>\n#include "engine/engine.h"\n#include "text/models/bpe.h"\n',
    "src/apps/main.cpp": '#include <CLI/CLI.hpp>\n#include "server/http/parser.h"\n#include "core/result.h"\n',
}

# What is added to one file of the good tree, and what must be said about it.
SEEDED = [
    ("src/core/result.h", '#include "kernels/ops.h"', "core may not include kernels"),
    ("src/io/json.h", '#include "text/models/bpe.h"', "io may not include text"),
    ("src/text/models/bpe.h", '#include "model/decoder.h"', "text may not include model"),
    ("src/jinja/value.h", '#include "io/json.h"', "jinja may not include io"),
    ("src/kernels/ops.h", '#include "model/decoder.h"', "kernels may not include model"),
    ("src/kernels/ops.h", '#include "kernels/cpu/simd.h"', "kernels may not include kernels/cpu"),
    ("src/model/decoder.h", '#include "engine/engine.h"', "model may not include engine"),
    ("src/engine/engine.h", '#include "text/models/bpe.h"', "engine may not include text"),
    ("src/engine/engine.h", '#include "io/json.h"', "engine may not include io"),
    ("src/engine/engine.h", '#include "server/http/parser.h"', "engine may not include server"),
    ("src/server/http/parser.h", '#include "apps/options.h"', "server may not include apps"),
    ("src/server/http/parser.h", '#include "load/load_engine.h"', "server may not include load"),
    ("src/load/load_engine.h", '#include "server/http/parser.h"', "load may not include server"),
    ("src/load/load_engine.h", "#include <CLI/CLI.hpp>", "CLI11 belongs to apps, bench and cli"),
    ("src/engine/engine.h", '#include "load/load_engine.h"', "engine may not include load"),
    ("src/apps/main.cpp", '#include "kernels/cpu/simd.h"', "apps may not include kernels/cpu"),
    ("src/engine/engine.h", '#include "result.h"', "is no header below src/"),
    ("src/engine/engine.h", '#include "core/absent.h"', "is no header below src/"),
    ("src/engine/engine.h", "#pragma omp parallel", "OpenMP belongs to kernels/cpu/gemm/onednn.cpp"),
    ("src/core/result.h", "#include <spdlog/spdlog.h>", "spdlog belongs to core/log"),
    ("src/kernels/ops.h", "#include <dnnl.hpp>", "oneDNN belongs to kernels/cpu/gemm/onednn.cpp"),
    ("src/kernels/ops.h", "#include <immintrin.h>", "intrinsics belong to kernels/cpu"),
    ("src/kernels/ops.h", "#include <cuda_runtime.h>", "CUDA belongs to kernels/cuda"),
    ("src/server/http/parser.h", "#include <nlohmann/json.hpp>", "nlohmann-json belongs to io/json"),
    ("src/io/json.h", "#include <curl/curl.h>", "libcurl belongs to io/http_client"),
    ("src/io/json.h", 'constexpr char kPath[] = "/v1/messages";', "a dialect's path belongs to its Dialect"),
    ("src/io/json.h", 'constexpr char kAdvice[] = "use /v1/responses";', "a dialect's path belongs to its Dialect"),
    ("src/apps/main.cpp", "#include <boost/beast.hpp>", "Boost.Beast belongs to server/http"),
    ("src/apps/main.cpp", "#include <boost/asio.hpp>", "Boost belongs to server"),
    ("src/server/http/parser.h", "#include <CLI/CLI.hpp>", "CLI11 belongs to apps, bench and cli"),
    ("src/CMakeLists.txt", "baton_layer(engine LINK baton_text)", "engine may not link text"),
    ("src/helpers/x.h", "", "is in no folder"),
    ("src/server/http/parser.h", '#include "server/keys/auth.h"', "server/http may not include server/keys"),
    ("src/server/keys/auth.h", '#include "server/routes.h"', "server/keys may not include server (server/routes.h)"),
    ("src/core/result.h", '#include "core/limits/insist.h"', "core may not include core/limits"),
    ("src/server/other/x.h", "", "is in a room of server that"),
]


def run_check(files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class CheckLayers(unittest.TestCase):
    def test_a_good_tree_passes(self):
        status, said = run_check(GOOD)
        self.assertEqual(status, 0, said)

    def test_each_wrong_line_is_found_and_named(self):
        targets = dict.fromkeys(
            ["kernels/cpu/simd.h", "apps/options.h", "server/keys/auth.h", "server/routes.h", "core/limits/insist.h"], ""
        )
        targets = {f"src/{name}": text for name, text in targets.items()}
        for name, line, expected in SEEDED:
            with self.subTest(file=name, line=line):
                status, said = run_check({**GOOD, **targets, name: GOOD.get(name, "") + line + "\n"})
                self.assertEqual(status, 1, said)
                self.assertIn(expected, said)
                self.assertIn(f"{name}:", said)
                self.assertIn("1 violations", said)

    def test_a_folder_of_too_many_files_is_named(self):
        status, said = run_check({**GOOD, **{f"src/plan/part{i}.h": "" for i in range(25)}})
        self.assertEqual(status, 1, said)
        self.assertIn("src/plan: holds 25 files of at most 24", said)

    def test_an_allowed_arrow_without_a_user_is_named(self):
        own = {"tools/check_layers.py": CHECK.read_text(encoding="utf-8")}
        status, said = run_check({**GOOD, **own})
        self.assertEqual(status, 1, said)
        self.assertIn("tools/check_layers.py: no file of plan includes kernels, which ARROWS allows", said)
        self.assertIn("tools/check_layers.py: no file of server/http includes server/limits, which ROOMS allows", said)
        self.assertNotIn("no file of io includes core", said)

    def test_an_empty_tree_fails(self):
        status, _ = run_check({"src/CMakeLists.txt": ""})
        self.assertEqual(status, 1)


if __name__ == "__main__":
    unittest.main()
