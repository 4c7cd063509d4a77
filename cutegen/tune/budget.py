"""A search with a budget: a quick pass over all problems, depth where gain is likely, and longer proofs at the end.

Whenever it ends, each problem that was visited has the best of what was seen there and proved against the default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cutegen.run.shapes import shape_text
from cutegen.tune.promise import Promise
from cutegen.tune.search import Clock, ProblemError, Search, Trial, scores
from cutegen.tune.stages import BRIEF_PROOF, LONG_PROOF, PROOF, SHORT_PROOF, STAGES, Stage, samples, survivors
from cutegen.tune.store import Timing
from cutegen.tune.tune_problems import Attempt

FIRST = 4  # candidates of a problem's first visit, where compiling them for all takes no more than FIRST_SHARE
FIRST_SHARE = 0.4
COMPILE_SECONDS = 2.5  # that a kernel takes a process while others compile
VISIT = 6  # further candidates of a visit
# Those that a second look is worth: no further behind the fastest, and how many.
CLOSE, CONTENDERS = 0.97, 4
TRIES = 2  # candidates that are proved in a visit, where the first does not hold what it promised
CLEAR = 1.02  # the lower end of a speed that a longer proof is not likely to take below what counts
# Seconds: for a candidate and its share of the visit before any was measured; what a slice takes besides itself; what
# judging results again takes.
CANDIDATE_SECONDS, SLICE_EXTRA, JUDGE_SECONDS = 0.5, 0.008, 0.3
PROOF_SHARE = 0.2  # of the budget, at most, that is kept for proofs at the end
HOPELESS = 1e-6  # less than this is not to be gained by a candidate
FRUITLESS = 1e-4  # a visit that promises less waits for kernels that promise more
TICK = 0.5  # seconds of waiting between two words about progress


PROOFS = (BRIEF_PROOF, SHORT_PROOF, PROOF, LONG_PROOF)


class Building(Protocol):
    """Where kernels come from, by name: cutegen.build.KernelStream."""

    @property
    def working(self) -> bool: ...
    def request(self, names: Sequence[str]) -> None: ...
    def poll(self) -> None: ...
    def wait(self, seconds: float) -> None: ...


class Ending(NamedTuple):
    """How the search of a problem ends: looks at what leads, and a proof."""

    looks: tuple[Stage, ...]
    proof: Stage

    def seconds(self, candidates: int) -> float:
        """What it takes, about, where so many candidates had their first look."""
        total, before = 2 * JUDGE_SECONDS + _seconds(self.proof, 1), STAGES[0]
        for stage in self.looks:
            candidates = min(candidates, survivors(before, candidates))
            total, before = total + _seconds(stage, candidates), stage
        return total


@dataclass
class Standing:
    """A problem on the way. visits, seconds: so far. proved: seconds of the longest proof, by kernel. best: the winner,
    with its proof. ended: it had as long a proof as there was time for."""

    attempt: Attempt
    search: Search
    visits: int = 0
    seconds: float = 0.0
    proved: dict[str, float] = field(default_factory=dict)
    best: tuple[Trial, Timing] | None = None
    ended: bool = False

    @property
    def trials(self) -> list[Trial]:
        return self.attempt.report.trials

    @property
    def is_open(self) -> bool:
        return not self.attempt.lost and not self.search.stopped

    @property
    def untried(self) -> list[Trial]:
        return [t for t in self.trials if not t.fault and not t.timing]

    @property
    def ranked(self) -> list[Trial]:
        """What was measured, fastest first."""
        timed = [t for t in self.trials if t.timing and not t.fault]
        score = scores(timed)
        return sorted(timed, key=lambda t: -score(t))

    @property
    def is_in_doubt(self) -> bool:
        """Whether a longer proof may change what runs here."""
        leader = next(iter(self.ranked), None)
        if leader is None or leader.speed is None or leader.speed.high < leader.least:
            return False
        return not (self.best and self.best[0] is leader and leader.speed.low >= CLEAR * leader.handicap)

    def settle(self) -> None:
        """Notes the best of the kernels that are proved; one whose longer proof says otherwise is none any more. A
        proof that was interrupted does not count: its results were not judged again."""
        if winner := next((t for t in self.ranked if t.wins and t.name in self.proved), None):
            assert winner.timing
            self.best = winner, winner.timing
        elif self.best and (self.best[0].fault or self.best[0].stage == PROOF.name):
            self.best = None

    def conclude(self) -> bool:
        """The result, whatever was measured last; False: there is none, the problem was not visited."""
        report = self.attempt.report
        if self.best and not self.best[0].fault:
            best, timing = self.best
            report.best, best.timing, best.stage = best, timing, PROOF.name
        report.stopped, report.crowded = self.search.stopped, self.search.crowded
        report.notes, report.seconds = tuple(self.search.notes), self.seconds
        return self.visits > 0


class BudgetedSearch:
    """Searches problems until the deadline; every kernel is compiled by `building`, which calls `take` as they come.

    stages: of a search that has all the time it wants. tell(text): what is being done. workers: compile processes.
    """

    def __init__(
        self,
        standings: Sequence[Standing],
        building: Building,
        workers: int,
        clock: Clock,
        deadline: float,
        stages: Sequence[Stage] = STAGES,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.standings, self.building, self.clock, self.deadline, self.tell = (
            standings, building, clock, deadline, tell,
        )  # fmt: skip
        self.look, self.second = stages[0], stages[1]
        self.endings = (Ending(tuple(stages[1:]), PROOF), Ending((), PROOF), Ending((), SHORT_PROOF))
        self.built: set[str] = set()
        self._spent, self._measured, self._doing = 0.0, 0, ""
        kernels = FIRST_SHARE * (deadline - clock()) * workers / COMPILE_SECONDS
        self.first = max(1, min(FIRST, int(kernels / max(1, len(standings))) - 1))
        for standing in standings:
            standing.search.on_sample = lambda count: self._meanwhile()
            standing.search.deadline = deadline

    def take(self, name: str) -> None:
        """A kernel is compiled, and can be measured."""
        self.built.add(name)

    def run(self) -> None:
        """CutegenError: nothing can be measured any more. What was found stands in any case."""
        self._recall()
        self._pass_once()
        self._deepen(PROOF_SHARE)
        self.building.request([])
        visited = [s for s in self._open() if s.visits]
        in_doubt = [s for s in visited if s.is_in_doubt]
        self._prove_longer(in_doubt if self._left() < sum(map(self._least_ending, visited)) else visited)
        self._deepen(0.0)  # proofs take what they need, not what they may
        self._prove_longer([s for s in visited if s.is_open and not s.ended])

    # -- the first pass --

    def _recall(self) -> None:
        """What was measured before, as far as each kernel came, and what was found to fail."""
        for s in self.standings:
            for trial in s.trials:
                if s.search.known_fault(trial) or not s.search.stored(self.look, trial):
                    continue
                s.search.stored(self.second, trial)
                for proof in PROOFS:
                    if s.search.stored(proof, trial):
                        s.proved[trial.name] = proof.seconds
            s.settle()

    def _pass_once(self) -> None:
        """Visits each problem as soon as its first kernels are compiled."""
        self._request(self.standings)
        while waiting := [s for s in self._open() if not s.visits]:
            ready = next((s for s in waiting if self._is_ready(s)), None)
            if ready is None:
                self._say(f"first pass, {len(self.standings) - len(waiting)} of {len(self.standings)}: compiling")
                if self._left() <= 0:
                    return
                self.building.wait(min(TICK, self._left()))
                continue
            if self._left() < self._cost(self.first):
                return
            self._visit(ready, [t for t in ready.untried if t.name in self.built][: self.first], "first pass")

    def _is_ready(self, s: Standing) -> bool:
        """Everything for its first visit is there, or nothing more comes."""
        names = [s.attempt.beside.name, *(t.name for t in s.ranked[:TRIES]), *(t.name for t in s.untried[: self.first])]
        return not self.building.working or self.built.issuperset(names)

    # -- depth --

    def _deepen(self, share: float) -> None:
        """Visits the problem that promises most for its time, again and again. share: of the time that is left, kept
        for proofs of what is in doubt, where these need so much."""
        most_kept = share * self._left()
        while True:
            self.building.poll()
            visited = [s for s in self._open() if s.visits]
            kept = min(most_kept, sum(self._least_ending(s) for s in visited if s.is_in_doubt))
            promise = Promise([s.trials for s in visited])
            best, most = None, 0.0
            for number, s in enumerate(visited):
                there = promise.order(number, [t for t in s.untried if t.name in self.built])[:VISIT]
                gain = promise.weights[number] * sum(promise.gain(number, t) for t in there)
                if there and gain / self._cost(len(there)) > most:
                    best, most, gained = (s, there), gain / self._cost(len(there)), gain
            self._request(visited, promise)
            left = self._left() - kept
            if best and gained > (FRUITLESS if self.building.working else HOPELESS):
                if left < self._cost(len(best[1])):
                    return
                self._visit(*best, "further candidates")
            elif self.building.working and left > 0:
                self._say("further candidates: compiling")
                self.building.wait(min(TICK, left))
            else:
                return

    def _request(self, standings: Sequence[Standing], promise: Promise | None = None) -> None:
        """Asks for kernels: those of each problem's first visit, then what promises most."""
        names = []
        for s in standings:
            names += [s.attempt.beside.name, *(t.name for t in s.ranked[:TRIES])]
            if not s.visits:
                names += [t.name for t in s.untried[: self.first]]
        promise = promise or Promise([s.trials for s in standings])
        further = [
            (promise.weights[number] * promise.gain(number, t), t.name)
            for number, s in enumerate(standings)
            for t in s.untried
        ]
        names += [name for gain, name in sorted(further, key=lambda item: -item[0]) if gain > HOPELESS]
        self.building.request([name for name in names if name not in self.built])

    # -- proofs --

    def _prove_longer(self, standings: Sequence[Standing]) -> None:
        """The longest ending that there is time for, of those in doubt first."""
        for number, s in enumerate(sorted(standings, key=lambda s: not s.is_in_doubt)):
            share, count = self._left() / (len(standings) - number), len(s.ranked)
            chosen = next((e for e in self.endings if e.seconds(count) <= share), self.endings[-1])
            if chosen.seconds(count) <= self._left():
                self._visit(s, (), "proofs", chosen)
                s.ended = True

    def _least_ending(self, s: Standing) -> float:
        return self.endings[-1].seconds(len(s.ranked))

    # -- a visit --

    def _visit(self, s: Standing, further: Sequence[Trial], doing: str, ending: Ending | None = None) -> None:
        """Looks at further candidates, again at those that lead, and proves the best."""
        begun = self.clock()
        at = sum(bool(other.visits) for other in self.standings) + (not s.visits)
        self._doing = f"{doing}, {at} of {len(self.standings)}, {shape_text(s.attempt.report.problem)}: measuring"
        s.search.resume()
        try:
            s.search.look(self.look, further)
            if ending:
                self._look_longer(s, ending)
            else:
                leading = [t for t in s.ranked if t.name in self.built]
                close = [t for t in leading if t.score >= CLOSE * leading[0].score][:CONTENDERS]
                s.search.look(self.second, [t for t in close if t.stage == self.look.name])
            self._confirm(s, ending.proof if ending else BRIEF_PROOF)
        except ProblemError as error:
            s.attempt.lost = error
        finally:
            s.settle()
            s.seconds += self.clock() - begun
        s.visits += 1
        if further:
            self._spent, self._measured = self._spent + self.clock() - begun, self._measured + len(further)

    def _look_longer(self, s: Standing, ending: Ending) -> None:
        """The stages of a search without a budget, behind the first."""
        left = [t for t in s.ranked if t.name in self.built]
        before = self.look
        for stage in ending.looks:
            left = left[: survivors(before, len(left))]
            s.search.look(stage, left)
            s.proved.clear()
            score, before = scores(left), stage
            left = sorted((t for t in left if not t.fault), key=lambda t: -score(t))

    def _confirm(self, s: Standing, proof: Stage) -> None:
        """A proof of the fastest; of the next one where that does not hold, or is the faster one by its proof."""
        for _ in range(TRIES + 1):
            leading = (t for t in s.ranked if t.name in self.built)
            trial = next((t for t in leading if t.wins or s.proved.get(t.name, 0.0) < proof.seconds), None)
            if trial is None or trial.speed is None or trial.speed.high < trial.least:
                return
            if s.proved.get(trial.name, 0.0) >= proof.seconds or self._left() < _seconds(proof, 1):
                return
            s.search.prove(trial, proof)
            s.proved[trial.name] = proof.seconds
            if proof is PROOF and s.search.leaves_open(trial) and self._left() > _seconds(LONG_PROOF, 1):
                s.search.prove(trial, LONG_PROOF)
                s.proved[trial.name] = LONG_PROOF.seconds

    # -- time --

    def _open(self) -> list[Standing]:
        return [s for s in self.standings if s.is_open]

    def _left(self) -> float:
        return self.deadline - self.clock()

    def _cost(self, candidates: int) -> float:
        """Seconds of a visit for so many candidates."""
        each = self._spent / self._measured if self._measured else CANDIDATE_SECONDS
        return candidates * each

    def _meanwhile(self) -> None:
        self.building.poll()
        self.tell(self._doing)

    def _say(self, text: str) -> None:
        self._doing = text
        self.tell(text)


def _seconds(stage: Stage, candidates: int) -> float:
    """What a stage takes, about."""
    return samples(stage, candidates) * (stage.slice_seconds + SLICE_EXTRA)
