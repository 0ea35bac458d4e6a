"""The space of a search, what prunes it, and every strategy on the simulator's machine."""

from dataclasses import replace

import pytest
from machines import slow_links
from plans import rules_of
from schedules import stage_times

from han.common.errors import ConfigError
from han.config.machine import load_machine
from han.model.collectives import ROWS
from han.model.topology import virtual
from han.submodules import registry
from han.submodules.registry import plan_of_choice
from han.tasks.call import call_signature
from han.tasks.choice import Choice, level_choice
from han.tasks.contract import Algorithm, Submodule
from han.tasks.simulate import simulate
from han.tuning.built_in.choosing import NodeTraits, choose
from han.tuning.costs.model import Costs, missing, shared_out, told_apart
from han.tuning.costs.stages import costs_of, pipeline_of_choice
from han.tuning.measured import FEWEST_RACED, MOST_RACED, PATIENCE
from han.tuning.search.heuristics import prune
from han.tuning.search.limits import Limits, load_limits
from han.tuning.search.race import by_prediction
from han.tuning.search.results import Errors, OutOfTime, Winners
from han.tuning.search.space import ALIKE, space_of
from han.tuning.search.strategies import STRATEGIES, mixed, run
from han.tuning.search.task import OF_SLOW, OF_TASKS, ends_first, family_of, first_of

KiB = 1024
TOPOLOGY = virtual(4, 2)
RULES = rules_of(TOPOLOGY)
LIMITS = Limits(
    submodules=("sm", "adapt"), segments=(32 * KiB, 128 * KiB), schedules=("dataflow",),
    algorithms=("flat", "chain", "binomial"),
    parameters={"adapt.segment": (16 * KiB, 64 * KiB), "window": (), "radix": (), "chunk": ()},
)  # fmt: skip
CALL = call_signature("bcast", 1 << 20)
SPACE = space_of(RULES, CALL, LIMITS)


class SimulatedLab:
    """A lab whose machine is the simulator; `most` is the number of measurements it has time for.

    `measured` counts the bytes that were moved to measure something.
    """

    def __init__(self, machine=None, most=10**9):
        self.machine = slow_links() if machine is None else load_machine(machine)
        self.place = self.machine.place(2, 2)
        self.costs, self.errors, self.winners, self.most = Costs(), Errors(), Winners(), most
        self.observed = set()
        self.whole_calls = self.pipelines = 0
        self.bytes = 0

    def plan(self, signature, choice):
        return plan_of_choice(TOPOLOGY, signature, choice, 1 << 24)

    def pipeline(self, signature, choice):
        return pipeline_of_choice(signature, choice, self.plan)

    def distinct(self, signature, choices):
        return choices

    def _simulate(self, signature, choice, spans=False):
        if self.whole_calls + self.pipelines >= self.most:
            raise OutOfTime
        self.bytes += signature.nbytes
        plan = self.plan(signature, choice)
        return plan, simulate(plan, self.machine, self.place, spans=spans)

    def is_late(self):
        return False

    def observe(self, signature, choice, limit):
        _, found = self._simulate(signature, choice)
        self.whole_calls += 1
        self.observed.add((signature, choice))
        return [found.seconds]

    def learn(self, signature, choice):
        pipeline = self.pipeline(signature, choice)
        if not missing(pipeline, self.costs):
            return
        rows = []
        for count in (pipeline.short, *([pipeline.longer] if pipeline.is_long else [])):
            one = replace(signature, count=pipeline.nbytes(count) // signature.element)
            rows.append(self._stages(*self._simulate(one, choice, spans=True)))
            self.pipelines += 1
        for stage, ranks in costs_of(pipeline, *rows).items():
            self.costs.add(stage, ranks)

    def learn_again(self, signature, choice):
        """Measure nothing: these costs do not vary."""

    def _stages(self, plan, found):
        return stage_times(plan, found.spans)


def best(found):
    return found.measured[0].measured.median


def test_the_space_holds_what_the_registry_holds():
    for collective in ("bcast", "reduce", "allreduce"):
        signature = call_signature(collective, 1 << 20)
        space = space_of(RULES, signature)
        built_in = RULES.decide(signature).choice
        assert space.candidates[0] == built_in
        assert len(set(space.candidates)) == len(space.candidates)
        assert all(RULES.objection(signature, c) is None for c in space.candidates)
        on_network = {c.levels[1].submodule for c in space.candidates}
        wanted = {"adapt", "libnbc", "exchange"} if collective == "allreduce" else {"adapt"}
        assert wanted <= on_network
        mixed = [c for c in space.candidates if c.levels[1].factors("factors")]
        few = {"recursive", "cyclic"} if collective == "allreduce" else {"scatter"}
        assert few <= {c.levels[1].algorithm for c in mixed}
        segments = {c.segment for c in space.candidates}
        assert {None, 16 * KiB, 512 * KiB} <= segments
        assert {c.schedule for c in space.candidates} == {"dataflow", "lockstep"}
        told = {one.what: one.reason for one in space.pruned}
        assert "name them in the space's parameters" in told["adapt order"]
        assert not [c for c in space.candidates if "arrival" in repr(c)], "it changes results"
        assert "wrong by design" in told["null"]
        assert "may block" in told["mpi"]


def test_the_space_holds_the_other_compositions_or_says_why_not():
    served = {"allreduce": {"flat", "nap", "lanes", "ring"}, "bcast": {"flat", "lanes", "ring"}}
    for collective, wanted in served.items():
        signature = call_signature(collective, 1 << 20)
        space = space_of(RULES, signature)
        assert {c.composition for c in space.candidates} == {"tree", *wanted}
        told = [one.reason for one in space.pruned if one.what == "nap"]
        assert told if collective == "allreduce" else "nap serves allreduce, barrier" in told[0]
        for name in wanted:
            mine = [c for c in space.candidates if c.composition == name]
            assert mine[0] == replace(choose(signature, TOPOLOGY, NodeTraits(), name), rule="")
            assert len(mine) == 1 + sum(
                c.segment != mine[0].segment
                or sum(a != b for a, b in zip(c.levels, mine[0].levels, strict=True)) == 1
                for c in mine[1:]
            )
    lanes = [c for c in space.candidates if c.composition == "lanes"]
    assert {c.segment for c in lanes} >= {None, 64 * KiB}
    assert len({c.levels[1].algorithm for c in lanes}) > 1


def test_compositions_are_left_out_on_one_node_and_where_limits_say_so():
    signature = call_signature("allreduce", 1024)
    alone = space_of(rules_of(virtual(4, 4)), signature)
    assert {c.composition for c in alone.candidates} == {"tree"}
    assert "all ranks are on one node" in {one.reason for one in alone.pruned}
    some = space_of(RULES, signature, Limits(compositions=("flat",)))
    assert {c.composition for c in some.candidates} == {"tree", "flat"}
    told = {one.what: one.reason for one in space_of(RULES, signature, LIMITS).pruned}
    assert "nap, which is not among the wanted submodules" in told["nap"]
    assert "not among the wanted compositions" in {o.reason for o in some.pruned}


def test_costs_of_one_composition_do_not_stand_for_those_of_another():
    signature = call_signature("allreduce", 8)
    lab, exchange = SimulatedLab(), level_choice("exchange", "recursive_doubling")
    levels = (level_choice("sm", "flat"), exchange)
    pipelines = [
        lab.pipeline(signature, Choice(levels, composition=name)) for name in ("tree", "flat")
    ]
    stages = [{stage for stage, _ in one.stages()} for one in pipelines]
    assert not stages[0] & stages[1]


def test_a_submodule_of_somebody_else_is_in_the_space():
    class Theirs(Submodule):
        """Serves broadcasts."""

        name, about = "theirs", "somebody else's"
        algorithms = {"only": Algorithm("one", ("bcast",))}

        def supports(self, question):
            """Serve every call."""

        def lower(self, context):
            """Emit nothing."""

    registry.register(Theirs())
    try:
        space = space_of(RULES, call_signature("bcast", 4096))
        assert any(c.levels[1] == level_choice("theirs", "only") for c in space.candidates)
        pruned = prune(space, call_signature("bcast", 4096), TOPOLOGY)
        assert any(c.levels[1] == level_choice("theirs", "only") for c in pruned.candidates)
    finally:
        del registry._imported["theirs"]


def test_limits_restrict_the_space_and_say_so():
    used = {level.submodule for c in SPACE.candidates[1:] for level in c.levels}
    assert used == {"sm", "adapt"}
    assert {c.segment for c in SPACE.candidates[1:]} == {None, 32 * KiB, 128 * KiB}
    assert any("not among the wanted submodules" in one.reason for one in SPACE.pruned)


def test_heuristics_prune_with_reasons_and_keep_the_built_in_choice():
    space = space_of(RULES, CALL)
    pruned = prune(space, CALL, TOPOLOGY)
    assert pruned.candidates[0] == space.candidates[0]
    assert len(pruned.candidates) < len(space.candidates) / 2
    reasons = " ".join(one.reason for one in pruned.pruned)
    for text in ("lockstep starts no task earlier", "switches turn optimisations off"):
        assert text in reasons


@pytest.mark.parametrize(("nodes", "stays"), [(4, True), (64, False)])
def test_a_short_chain_stays_for_messages_of_one_piece_as_calls_in_a_row_fill_it(nodes, stays):
    topology = virtual(nodes, 1)
    rules, signature = rules_of(topology), call_signature("bcast", 8 * KiB)
    pruned = prune(space_of(rules, signature, LIMITS), signature, topology)
    outermost = {(one.levels[-1].submodule, one.levels[-1].algorithm) for one in pruned.candidates}
    assert (("adapt", "chain") in outermost) == stays
    told = " ".join(one.reason for one in pruned.pruned)
    assert ("1 pieces do not fill a chain of 64 members" in told) != stays


@pytest.mark.parametrize("collective", ["bcast", "reduce", "allreduce"])
def test_tasks_find_nearly_the_best_choice_and_serve_larger_messages(collective):
    sizes = (128 * KiB, 1 << 20)
    exhaustive, task = SimulatedLab(), SimulatedLab()
    for nbytes in sizes:
        signature = call_signature(collective, nbytes)
        space = space_of(RULES, signature, LIMITS)
        everything = run(STRATEGIES["exhaustive"], exhaustive, signature, space)
        assert len(everything.measured) == len(space.candidates)
        found = run(STRATEGIES["task"], task, signature, space)
        assert best(found) <= 1.1 * best(everything), nbytes
        slow = _families_left_out(found, space)
    larger = call_signature(collective, 4 << 20)
    again = [c for c in space_of(RULES, larger, LIMITS).candidates if c.segment in LIMITS.segments]
    again = [c for c in again if family_of(c) not in slow]
    unknown = [c for c in again if missing(task.pipeline(larger, c), task.costs)]
    assert len(unknown) < len(again) / 10, "costs of pipelines are used again"


def _families_left_out(found, space):
    """Return families of which members were left out; these must be slow."""
    predicted = {r.choice: r.predicted for r in found.results}
    least = min(predicted.values())
    left = set(space.candidates) - set(predicted)
    assert bool(left) == (OF_SLOW in found.pruned)
    families = {family_of(choice) for choice in left}
    known = [t for choice, t in predicted.items() if family_of(choice) in families]
    assert not known or min(known) > PATIENCE * least
    return families


def test_parameters_of_slow_algorithms_are_left_out_with_the_reason():
    few = LIMITS.model_copy(update={"algorithms": ("flat", "chain", "linear")})
    space = space_of(RULES, CALL, few)
    found = run(STRATEGIES["task"], SimulatedLab(), CALL, space)
    left = set(space.candidates) - {r.choice for r in found.results}
    assert any(one.parameters for choice in left for one in choice.levels)
    assert len({choice.segment for choice in left}) > 1
    assert _families_left_out(found, space)


def test_members_with_few_parameters_and_the_ends_of_the_segments_stand_for_a_family():
    levels = [level_choice("adapt", "chain"), level_choice("adapt", "chain", window=2)]
    several = [
        Choice((one,), segment, schedule)
        for one in reversed(levels)
        for segment in (KiB, 2 * KiB, None)
        for schedule in ("lockstep", "dataflow")
    ]
    built_in = Choice((levels[1],), KiB)
    first = first_of(list(dict.fromkeys([built_in, *several])))
    assert first == [built_in, Choice((levels[0],), KiB), Choice((levels[0],))]
    assert len({family_of(one) for one in several}) == 1
    assert [one.segment for one in ends_first(several, built_in)][-4:] == 4 * [2 * KiB]


def test_a_model_of_the_machine_needs_few_measurements():
    everything = run(STRATEGIES["exhaustive"], SimulatedLab(), CALL, SPACE)
    lab = SimulatedLab()
    found = run(STRATEGIES["simulate"], lab, CALL, SPACE, load_machine("emulated-1gbit"))
    assert best(found) == best(everything)
    assert len(lab.observed) < 14
    assert not lab.pipelines


@pytest.mark.parametrize("strategy", ["exhaustive", "heuristic", "task", "task+heuristic"])
def test_a_search_that_runs_out_of_time_returns_what_it_has(strategy):
    for most in (0, 1, 5):
        found = run(STRATEGIES[strategy], SimulatedLab(most=most), CALL, SPACE)
        assert not found.complete
        assert len(found.measured) <= most
    assert run(STRATEGIES[strategy], SimulatedLab(), CALL, SPACE).complete


def test_candidates_come_in_an_order_that_has_nothing_to_do_with_them():
    spaces = [space_of(RULES, call_signature("bcast", n)) for n in (256 * KiB, 1 << 20)]
    found = [mixed(space) for space in spaces]
    for before, after in zip(spaces, found, strict=True):
        assert after.candidates[0] == before.candidates[0]
        assert set(after.candidates) == set(before.candidates)
    half = found[0].candidates[1 : len(spaces[0].candidates) // 2]
    submodules = {level for one in spaces[0].candidates for level in one.levels}
    assert len({level for one in half for level in one.levels}) > 0.7 * len(submodules)
    both = set(spaces[0].candidates[1:]) & set(spaces[1].candidates[1:])
    orders = [[one for one in space.candidates if one in both] for space in found]
    assert orders[0] == orders[1], "costs of tasks are used again"


def test_candidates_without_a_prediction_are_measured():
    class Blind(SimulatedLab):
        def learn(self, signature, choice):
            if choice.levels[1].algorithm != "chain":
                super().learn(signature, choice)

    signature = call_signature("bcast", 256 * KiB)
    space = space_of(RULES, signature, LIMITS)
    found = run(STRATEGIES["task"], Blind(), signature, space)
    measured = {r.choice for r in found.measured}
    unknown = [r.choice for r in found.results if r.predicted is None]
    assert unknown
    assert set(unknown) <= measured


def test_of_choices_that_run_the_same_the_first_that_serves_is_in_the_space():
    first = {}
    for one in SPACE.candidates:
        first.setdefault(one.levels[0], one)
    alike = space_of(RULES, CALL, LIMITS, lambda choice: choice.levels[0])
    assert list(alike.candidates) == list(first.values())
    assert ALIKE in alike.pruned
    assert ALIKE not in SPACE.pruned


def test_many_candidates_are_measured_until_the_error_of_predictions_is_known():
    candidates = SPACE.candidates
    apart = {one: 2.0**k for k, one in enumerate(candidates)}
    lab, counts = SimulatedLab(), []
    for _ in range(2):
        results, _ = by_prediction(lab, CALL, apart, candidates[0])
        counts.append(sum(one.measured is not None for one in results))
        lab.errors = Errors()
        for _ in range(20):
            lab.errors.add(1.0, 1.0)
    assert counts == [MOST_RACED, FEWEST_RACED]


def test_beyond_all_measured_sizes_the_best_of_each_family_is_measured():
    some = LIMITS.model_copy(update={"compositions": ()})
    candidates = space_of(RULES, CALL, some).candidates
    slow = [one for one in candidates if family_of(one) != family_of(candidates[0])]
    families = {family_of(one) for one in slow}
    assert len(families) < MOST_RACED - FEWEST_RACED
    told = {one: 1.0 + 9.0 * (one in slow) for one in candidates}
    lab = SimulatedLab()
    for _ in range(20):
        lab.errors.add(1.0, 1.0)
    measured = []
    for family in (None, family_of):
        results, _ = by_prediction(lab, CALL, told, candidates[0], family=family)
        choices = {one.choice for one in results if one.measured is not None}
        assert len(choices) <= MOST_RACED
        measured.append({family_of(one) for one in choices})
    assert not measured[0] & families
    assert measured[1] >= families


class OneNode(SimulatedLab):
    """Two ranks of one node, on which each algorithm's tasks take so many seconds."""

    topology = virtual(2, 2)
    seconds = {"direct": 0.75, "flat": 1.0, "chain": 5.0, "binomial": 5.0}

    def __init__(self):
        super().__init__()
        self.learnt = []

    def plan(self, signature, choice):
        return plan_of_choice(self.topology, signature, choice, 1 << 24)

    def pipeline(self, signature, choice):
        return told_apart(super().pipeline(signature, choice))

    def observe(self, signature, choice, limit):
        runs = [choice.levels[0].of(kind) for kind in ROWS[signature.collective].task_kinds]
        return [sum(self.seconds[one.algorithm] for one in runs)]

    def learn(self, signature, choice):
        pipeline = self.pipeline(signature, choice)
        if missing(pipeline, self.costs):
            self.learnt.append(choice)
            (whole,) = self.observe(signature, choice, 0.0)
            self.costs.enter(shared_out(pipeline, whole, self.costs, 2))


def test_calls_of_other_collectives_tell_which_combinations_of_tasks_are_slow():
    rules = rules_of(OneNode.topology)
    signature = call_signature("allreduce", 64)
    space = space_of(rules, signature, LIMITS)
    alone, after = OneNode(), OneNode()
    for collective in ("bcast", "reduce"):
        call = call_signature(collective, 64)
        run(STRATEGIES["task"], after, call, space_of(rules, call, LIMITS))
    after.learnt.clear()
    expected, found = (run(STRATEGIES["task"], lab, signature, space) for lab in (alone, after))
    assert {one.levels[0].algorithm for one in after.learnt} == {"direct", "flat"}
    assert len(after.learnt) < len(alone.learnt)
    assert best(found) == best(expected) == 1.5
    assert OF_TASKS in found.pruned
    assert OF_TASKS not in expected.pruned


def test_a_cost_that_another_program_spoilt_is_measured_again():
    class Spoilt(SimulatedLab):
        def __init__(self):
            super().__init__()
            self.again, self.right = 0, {}

        def learn(self, signature, choice):
            super().learn(signature, choice)
            if choice.levels[1].algorithm == best:
                for stage, _ in self.pipeline(signature, choice).stages():
                    self.right.setdefault(stage, self.costs.find(stage))
                    self.costs.add(stage, (1e-3,) * 4)

        def learn_again(self, signature, choice):
            self.again += 1
            for stage, _ in self.pipeline(signature, choice).stages():
                if stage in self.right:
                    self.costs.add(stage, self.right[stage])

    signature = call_signature("bcast", 64)
    space = space_of(RULES, signature, LIMITS)
    right = run(STRATEGIES["task"], SimulatedLab(), signature, space)
    best = right.measured[0].choice.levels[1].algorithm
    lab = Spoilt()
    found = run(STRATEGIES["task"], lab, signature, space)
    assert lab.again
    assert found.measured[0].choice == right.measured[0].choice


def test_a_pipeline_follows_from_the_plan_of_one_segment():
    lab = SimulatedLab()
    for collective in ("bcast", "allreduce"):
        for segment in (None, 32 * KiB, 1 << 20):
            choice = Choice((level_choice("sm", "flat"), level_choice("adapt", "chain")), segment)
            signature = call_signature(collective, 256 * KiB)
            found = lab.pipeline(signature, choice)
            assert found.count == (8 if segment == 32 * KiB else 1)
            assert found.segment == min(segment or 1 << 30, 256 * KiB)


# ---- files that restrict the space ----------------------------------------------------------


def test_a_file_restricts_the_space(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(
        "submodules: [sm, adapt]\nsegments: [64KiB, 1MiB]\nschedules: [dataflow]\n"
        "parameters:\n  adapt.segment: [32KiB]\n  exchange.factors: [2x2, [4]]\n"
    )
    found = load_limits(path)
    assert found.submodules == ("sm", "adapt")
    assert found.segments == (64 * KiB, 1 << 20)
    assert found.parameters == {
        "adapt.segment": (32 * KiB,), "exchange.factors": ((2, 2), (4,)),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("submodule: [sm]", "unknown key; did you mean 'submodules'?"),
        ("submodules: [sn]", "'sn': unknown submodule"),
        ("algorithms: [flatt]", "did you mean 'flat'"),
        ("parameters: {adapt.segmnt: [1KiB]}", "unknown parameter"),
        ("parameters: {adapt.segment: [many]}", "is not a size in bytes"),
        ("schedules: [sometimes]", "sometimes"),
    ],
)
def test_what_is_wrong_with_such_a_file_is_named(tmp_path, text, said):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_limits(path)
    assert "space.yaml" in str(error.value)
    assert said in str(error.value)
