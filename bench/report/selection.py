"""Which rows of bench/results a figure or a table shows, and their numbers.

Of each experiment one machine is shown: an H200 if there are rows of one, otherwise the GPU or the processor with the
most rows. Of each point the rows of Baton's last build are shown, with the repetitions of all its jobs together (rows of before
2026-11-29 name no build; of them those of the last day), and the last rows of every other program. Rows of Baton are left out
where a later build measured the same job, or the same point with other numbers of requests or rates. What stands under a figure
or table names commits and builds.
"""

import functools
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))

import result_rows  # noqa: E402

PUBLISHED = "published_relayattention.json"

# The last commit that changed the machine code of kernels for one GPU, and its day: where no row names a build, rows of Baton from
# before it say so.
KERNELS, KERNELS_DAY = "6077c99", "2026-11-29"


class Measured:
    """The rows of one arm at one point, measured on one machine and day."""

    def __init__(self, point, arm, rows):
        self.point, self.arm, self.rows = point, arm, rows

    def __getitem__(self, key):
        """The median of a number over the rows; a KeyError if no row has it."""
        return statistics.median(row["numbers"][key] for row in self.rows if row["numbers"].get(key) is not None)

    def get(self, key, default=None):
        values = [row["numbers"][key] for row in self.rows if row["numbers"].get(key) is not None]
        return statistics.median(values) if values and not isinstance(values[0], str | dict | list | bool) else default

    def raw(self, key, default=None):
        """A value that is no number, of the last row."""
        return next((row["numbers"][key] for row in reversed(self.rows) if row["numbers"].get(key) is not None), default)

    def repetitions(self, key):
        """The values of all rows' lists, in order."""
        return [value for row in self.rows for value in row["numbers"].get(key, [])]

    def rates(self, count):
        """A rate for each repetition of an offline run: `count` (num_requests, total_output_tokens) by its
        seconds. Of runs that were cut, the rate that the tool gave."""
        rates = []
        for row in self.rows:
            numbers = row["numbers"]
            if numbers.get("cut"):
                rates.append(numbers["requests_per_second" if count == "num_requests" else "output_tokens_per_second"])
            else:
                rates += [numbers[count] / seconds for seconds in numbers["elapsed_times"]]
        return rates

    def rate(self, count="total_output_tokens"):
        return statistics.median(self.rates(count))


def spread(values):
    """(largest - smallest) / median; None for fewer than two values."""
    return (max(values) - min(values)) / statistics.median(values) if len(values) > 1 else None


def rank(device, n_rows):
    return ("H200" in device, "NVIDIA" in device, n_rows)


def is_other_program(row):
    """Whether a row is a peer's: it has a program's name and version where Baton's rows have a commit."""
    return " " in row["commit"]


def day_of(row):
    return row["date"][:10]


def build_of(row):
    """A row's build as one text: the digits of its hashes that suffice. None if it names none."""
    build = row.get("build")
    return "/".join(value[:7] for value in build.values()) if build else None


def newest_build(rows):
    """(build, commit, day) of the last row that names one; None without any."""
    named = [row for row in rows if build_of(row)]
    last = max(named, key=lambda row: row["date"], default=None)
    return last and (build_of(last), last["commit"], day_of(last))


def subject_of(row):
    """What a row is about, whatever its number of requests or rate; cases of attention are as they are."""
    left_out = () if "table" in row["point"] else ("requests", "rate")
    return json.dumps({key: value for key, value in row["point"].items() if key not in left_out}, sort_keys=True)


def without_superseded(rows):
    """The rows without those of Baton of which a later build has the same job or the same subject."""
    last = {}  # by job and by subject: the newest row of a build
    for row in rows:
        if build_of(row) and "error" not in row:
            for key in (("job", row["job"]), ("subject", subject_of(row))):
                if key not in last or row["date"] > last[key]["date"]:
                    last[key] = row

    def is_superseded(row):
        newer = [last[key] for key in (("job", row["job"]), ("subject", subject_of(row))) if key in last]
        return any(build_of(other) != build_of(row) and other["date"] > row["date"] for other in newer)

    return [row for row in rows if is_other_program(row) or not is_superseded(row)]


class Results:
    """The rows of one experiment on the machine that is shown."""

    def __init__(self, rows, newest=None):
        """`newest`: of each device newest_build() of all experiments; without it that of these rows."""
        counts = {}
        for row in rows:
            counts[row["machine"]["device"]] = counts.get(row["machine"]["device"], 0) + 1
        self.device = max(counts, key=lambda device: rank(device, counts[device])) if counts else ""
        self.newest = newest
        self.build = newest.get(self.device) if newest is not None else newest_build(self._of_device(rows))
        self.rows = without_superseded(self._of_device(rows))
        self.of_other_devices = [row for row in rows if row["machine"]["device"] != self.device]
        self.is_gpu = "NVIDIA" in self.device
        self.measured = list(self._measured())
        self.failures = list(self._failures())

    def __bool__(self):
        return bool(self.measured)

    def _of_device(self, rows):
        return [row for row in rows if row["machine"]["device"] == self.device]

    def of(self, rows):
        """Results of some of these rows."""
        return type(self)(rows, self.newest)

    def each_gpu(self):
        """These, and the results of every other kind of GPU that has some."""
        yield self
        others = self.of([row for row in self.of_other_devices if "NVIDIA" in row["machine"]["device"]])
        if others:
            yield from others.each_gpu()

    def is_older(self, row):
        """Whether a row is Baton's on a GPU and not of its newest build; where no row names a build, of before its kernels changed
        last."""
        if is_other_program(row) or "NVIDIA" not in row["machine"]["device"]:
            return False
        return build_of(row) != self.build[0] if self.build else day_of(row) < KERNELS_DAY

    def is_marked(self, one):
        """Whether a measurement gets a mark where others beside it are of the newest build: rows of it are of an earlier one."""
        return bool(one and self.build and any(map(self.is_older, one.rows)))

    def _measured(self):
        points = {}
        for row in self.rows:
            points.setdefault(json.dumps(row["point"], sort_keys=True), []).append(row)
        for rows in points.values():
            in_time = sorted((row for row in rows if "error" not in row), key=lambda row: row["date"])
            last = {row["arm"]: row["commit"] for row in in_time if is_other_program(row)}
            program = next((build_of(row) or day_of(row) for row in reversed(in_time) if not is_other_program(row)), None)
            arms = {}
            for row in in_time:
                of_program = build_of(row) or day_of(row)
                if row["commit"] != last[row["arm"]] if is_other_program(row) else of_program != program:
                    continue
                arms.setdefault(row["arm"], []).append(row)
            for arm, of_arm in arms.items():
                whole = [row for row in of_arm if not row["numbers"].get("cut")]
                yield Measured(of_arm[0]["point"], arm, whole or of_arm)  # a cut run counts where none came to its end

    def _failures(self):
        """The last error of each job and arm, unless a run since, or one of the same commit, succeeded: of the job where it
        failed as a whole (arm "-"), else of the arm at the point. An error hides no measurement."""
        last = {(row["job"], row["arm"]): row for row in sorted(self.rows, key=lambda row: row["date"]) if "error" in row}
        for failed in last.values():
            whole = failed["arm"] == "-"
            succeeded = (
                row["job"] == failed["job"] if whole else (row["arm"], row["point"]) == (failed["arm"], failed["point"])
                for row in self.rows
                if "error" not in row and (row["date"] >= failed["date"] or whole and row["commit"] == failed["commit"])
            )
            if not any(succeeded):
                yield failed

    def find(self, arm=None, **point):
        """The measurements of an arm whose points have these values."""
        return [
            one
            for one in self.measured
            if (arm is None or one.arm == arm) and all(one.point.get(key) == value for key, value in point.items())
        ]

    def one(self, arm, **point):
        found = self.find(arm, **point)
        return found[0] if found else None

    def values(self, key):
        """The values of a parameter over all points of Baton, ascending."""
        ours = (one for one in self.measured if not is_other_program(one.rows[0]))
        return sorted({one.point[key] for one in ours if one.point.get(key) is not None})

    def of_table(self, *tables):
        """The rows of attention benchmarks whose table is one of these."""
        return self.of([row for row in self.rows if row["point"].get("table") in tables])

    def older(self, mark=""):
        """A sentence where rows of Baton that are shown are not of its newest build, or from before its kernels changed last; else
        nothing. `mark`: what the table has beside them."""
        rows = [row for one in self.measured for row in one.rows if not is_other_program(row)]
        older = [row for row in rows if self.is_older(row)]
        if not older:
            return ""
        named = sorted({row["commit"] if self.build else day_of(row) for row in older})
        listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
        which = "All rows of Baton" if len(older) == len(rows) else f"Baton's rows of {listed}{f' ({mark})' if mark else ''}"
        if self.build:
            return f"{which} are of builds before {self.build[0]} ({self.build[2]})."
        return f"{which} are of kernels that have changed since ({KERNELS}, {KERNELS_DAY})."

    def about(self):
        """Machine, date and commit, as they stand under each figure."""
        rows = [row for one in self.measured for row in one.rows]
        dates = sorted(set(map(day_of, rows)))
        ours = [row for row in rows if not is_other_program(row)]
        programs = sorted({row["commit"] + (f" (build {build_of(row)})" if build_of(row) else "") for row in ours})
        others = sorted({row["commit"] for row in rows if is_other_program(row)})
        when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
        driver = self.rows[-1]["machine"].get("driver")
        told = ", ".join([f"Baton {program}" for program in programs] + others)
        cards = sorted({card for row in ours for card in row["machine"].get("gpus", [])})
        which = f", cards {', '.join(cards)}" if len(cards) > 1 else ""
        return f"{self.device}{f', driver {driver}' if driver else ''}{which}; {when}; {told}"


@functools.cache
def read(path, _changed):
    """The rows of a file at a time of its last change."""
    return result_rows.load(path)


def rows_of(path):
    return read(path, (path.stat().st_mtime_ns, path.stat().st_size)) if path.exists() else []


def newest_builds(folder):
    """Of each device newest_build() of the rows of all experiments."""
    by_device = {}
    for path in sorted(Path(folder).glob("experiment_*.json")):
        for row in rows_of(path):
            by_device.setdefault(row["machine"]["device"], []).append(row)
    return {device: newest_build(rows) for device, rows in by_device.items()}


def load(folder, number, name, device=""):
    """The rows of an experiment, of devices with this in their name."""
    rows = rows_of(Path(folder) / f"experiment_{number:02}_{name}.json")
    return Results([row for row in rows if device in row["machine"]["device"]], newest_builds(folder))


class Published:
    """The RelayAttention authors' figures."""

    def __init__(self, folder):
        self.rows = [row for row in result_rows.load(Path(folder) / PUBLISHED) if "experiment" in row]

    def find(self, experiment, **values):
        rows = (row for row in self.rows if row["experiment"] == experiment)
        return [row for row in rows if all(row.get(key) == value for key, value in values.items())]

    def one(self, experiment, key, **values):
        found = self.find(experiment, **values)
        return found[0][key] if found else None
