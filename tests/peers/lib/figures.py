"""What one measurement found, and how two of them compare.

Rates are bytes per second of the measured time (ramp left out). CPU time is the user and system time of the threads that
move the bytes, in the same measured time, and both sides count it alike: nasgauge by the threads' CPU clock from the ramp's
end to the end of the last flush (`client_cpu_s_per_gb`, src/engine/worker.rs), fio by getrusage(RUSAGE_THREAD) of its job
from the ramp's end (backend.c, stat.c). Neither has its main thread and its start in it: over some seconds those would
count more than the difference that is looked for. What each process used altogether stands beside it in pairs.csv, so that
work hidden in other threads would show. smbclient tells nothing of the kind; see smbclient.py.
"""

import random
import statistics
from dataclasses import dataclass

SEED = 1
RESAMPLES = 10_000
FEWEST_PAIRS = 6  # with fewer the bootstrap interval is only the range
SLACK = 0.05


@dataclass
class Load:
    """What both sides do: fio's words; `bs` and `size` in bytes."""
    rw: str
    bs: int
    depth: int
    size: int

    def text(self):
        return f"{self.rw} {self.bs} bytes, {self.depth} under way"


@dataclass
class Figures:
    """What one side did; None is unknown."""
    bytes: int
    seconds: float
    ops: int | None
    cpu_s: float | None
    process_cpu_s: float
    flush_seconds: float | None = None
    in_flight: float | None = None  # by Little's law: operations per second times mean latency
    negotiated: str = ""

    def rate(self):
        """Durable where a flush was made, since it lies within the clock."""
        return self.bytes / (self.seconds + (self.flush_seconds or 0))

    def cpu_per_byte(self):
        return None if self.cpu_s is None else self.cpu_s / self.bytes

    def ns_per_op(self):
        return self.seconds * 1e9 / self.ops if self.ops else None


METRICS = {"throughput": Figures.rate, "cpu": Figures.cpu_per_byte, "ns_per_op": Figures.ns_per_op}
MORE_IS_BETTER = {"throughput"}


def ratio(metric, ours, peer):
    """ours / peer; None when a side does not know."""
    mine, other = METRICS[metric](ours), METRICS[metric](peer)
    return mine / other if mine and other else None


def median_interval(ratios):
    """The median and its 95 % interval, by a seeded bootstrap."""
    chance = random.Random(SEED)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    at = lambda share: medians[int(share * (RESAMPLES - 1))]
    return statistics.median(ratios), at(0.025), at(0.975)


@dataclass
class Verdict:
    """How a case stands by one metric."""
    metric: str
    pairs: int
    median: float
    low: float
    high: float
    bar: float | None

    def met(self):
        """yes, no, or why neither can be said."""
        if self.bar is None:
            return "no bar"
        if self.pairs < FEWEST_PAIRS:
            return "too few pairs"
        good = self.low >= self.bar - SLACK if self.metric in MORE_IS_BETTER else self.high <= self.bar + SLACK
        return "met" if good else "not met"


def judge(metric, pairs, bar):
    """The verdict over pairs of figures; None when no pair knows the metric."""
    ratios = [found for ours, peer in pairs if (found := ratio(metric, ours, peer)) is not None]
    return Verdict(metric, len(ratios), *median_interval(ratios), bar) if ratios else None
