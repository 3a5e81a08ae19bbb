"""CUDA device code inside a shared library: which kernels it holds, and zeroes in place of unwanted ones.

A library's section .nv_fatbin is a list of containers, one for each source file, with an entry for each architecture:
machine code, or PTX, which the driver compiles where there is no machine code for its GPU.
A zeroed entry keeps its place, so that nothing moves; a launch of one of its kernels fails with "no kernel image is
available". The zeroes pack to nothing, which is what this is for: carrying a library to a machine without a network.

Needs c++filt and strip, and the package zstandard where entries are compressed.
"""

import re
import struct
import subprocess

CONTAINER_MAGIC = 0xBA55ED50
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
PTX, MACHINE_CODE = 1, 2  # kinds of entries
KERNEL_NAME = re.compile(rb"(?:\.text\.|\.entry )(_Z\w+)")


def section(library, wanted):
    """(offset, size) of a section of a 64-bit ELF file. Errors: KeyError."""
    table = struct.unpack_from("<Q", library, 0x28)[0]
    entry_bytes, n_sections, names_index = struct.unpack_from("<HHH", library, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", library, table + i * entry_bytes) for i in range(n_sections)]
    names = headers[names_index][4]
    for header in headers:
        begin = names + header[0]
        if bytes(library[begin : library.index(b"\0", begin)]).decode() == wanted:
            return header[4], header[5]
    raise KeyError(wanted)


def containers(library):
    """The entries of each container of .nv_fatbin: lists of (kind, architecture, begin, end); 90 is sm_90 and sm_90a."""
    place, size = section(library, ".nv_fatbin")
    last = place + size - 16
    while place < last:
        magic, _, header_bytes, content_bytes = struct.unpack_from("<IHHQ", library, place)
        if magic != CONTAINER_MAGIC:
            place += 8
            continue
        entry, place = place + header_bytes, place + header_bytes + content_bytes
        found = []
        while entry < place:
            kind, _, entry_header_bytes, entry_bytes = struct.unpack_from("<HHIQ", library, entry)
            architecture = struct.unpack_from("<I", library, entry + 28)[0]
            found.append((kind, architecture, entry + entry_header_bytes, entry + entry_header_bytes + entry_bytes))
            entry += entry_header_bytes + entry_bytes
        yield found


def runs_on(container, architecture):
    """The entries of a container that a GPU of this architecture runs: its machine code, or else the newest PTX for it."""
    own = [entry for entry in container if entry[:2] == (MACHINE_CODE, architecture)]
    older = [entry for entry in container if entry[0] == PTX and entry[1] <= architecture]
    return own or sorted(older, key=lambda entry: entry[1])[-1:]


def kernels(code):
    """Names of the kernels of an entry, as C++ writes them, a line each."""
    if code.startswith(ZSTD_MAGIC):
        import zstandard

        code = zstandard.ZstdDecompressor().decompressobj().decompress(code)
    mangled = b"\n".join(sorted(set(KERNEL_NAME.findall(code))))
    return subprocess.run(["c++filt"], input=mangled, capture_output=True, check=True).stdout.decode()


def prune(source, target, architecture, is_wanted):
    """Writes a copy that keeps what runs on one architecture and for whose kernels is_wanted(names) is true, without debug
    symbols. Returns (kept bytes, all bytes) of device code."""
    library = bytearray(source.read_bytes())
    kept = in_all = 0
    for container in list(containers(library)):
        right = runs_on(container, architecture)
        for entry in container:
            begin, end = entry[2:]
            in_all += end - begin
            if entry in right and is_wanted(kernels(bytes(library[begin:end]))):
                kept += end - begin
            else:
                library[begin:end] = bytes(end - begin)
    target.write_bytes(library)
    target.chmod(0o755)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)
    return kept, in_all
