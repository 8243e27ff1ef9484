"""The three maps: exact tables against the paper's definitions, reported losses against enumeration, and the draws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from opboost.errors import ParameterError
from opboost.privacy.adj_map import AdjMap
from opboost.privacy.domain import IntegerDomain, Partition
from opboost.privacy.laws import LEAST_EPSILON, Law, kernel
from opboost.privacy.order_preserving import CHUNK_VALUES, GlobalMap, LocalMap
from opboost.rng import seeded

# Doubles carry 16 digits; the tables' logs reach 1000.
ROUNDING = 1e-9

# A correct sampler fails a chi-square test below this p-value once in a million runs; the seeds are fixed besides.
FALSE_ALARM = 1e-6

HUNDRED = IntegerDomain(1, 100)


@st.composite
def cells(draw: st.DrawFn) -> dict[str, object]:
    """A domain with cells of equal width, divisible or not, or of any widths, also a wide one amid narrow ones."""
    lo = draw(st.integers(-50, 50))
    if draw(st.booleans()):
        domain = IntegerDomain(lo, lo + draw(st.integers(1, 24)))
        return {"domain": domain, "theta": draw(st.integers(1, domain.size))}
    widths = draw(st.lists(st.one_of(st.integers(1, 5), st.sampled_from([1, 12])), min_size=2, max_size=6))
    starts = [lo + sum(widths[:i]) for i in range(len(widths) + 1)]
    domain = IntegerDomain(lo, starts.pop() - 1)
    return {"domain": domain, "partition": Partition(domain, tuple(starts))}


laws = st.sampled_from(list(Law))
epsilons = st.floats(0.001, 10)
global_maps = st.builds(
    lambda cells, **rest: GlobalMap(domain=cells["domain"], **rest), cells(), epsilon=epsilons, law=laws
)
local_maps = st.builds(lambda cells, **rest: LocalMap(**cells, **rest), cells(), epsilon=epsilons, law=laws)
adj_maps = st.builds(
    lambda cells, **rest: AdjMap(**cells, **rest), cells(), epsilon=epsilons, law=laws, alpha=st.floats(0.05, 10)
)
even_adj_maps = st.builds(
    lambda n, theta, **rest: AdjMap(domain=IntegerDomain(0, n - 1), theta=min(theta, n), **rest),
    st.integers(2, 60),
    st.integers(1, 12),
    epsilon=epsilons,
    law=laws,
    alpha=st.floats(0.05, 10),
)
any_maps = st.one_of(global_maps, local_maps, adj_maps)

# Its end points, in cells of their own, lose less than points nearer to each other do.
WIDE_AMID_NARROW = AdjMap(
    epsilon=1, domain=IntegerDomain(0, 13), partition=Partition(IntegerDomain(0, 13), (0, 1, 13)), alpha=0.05
)


def insides(mechanism: LocalMap | AdjMap) -> list[slice]:
    """The positions of every cell."""
    return [slice(a, a + width) for a, width in zip(mechanism.cells.cell_starts, mechanism.cells.widths, strict=True)]


def adj_one_by_one(mechanism: AdjMap) -> np.ndarray:
    """A cell by the law on indices, then a value in it: from x, from its lower edge or from its upper edge."""
    n, cells = mechanism.domain.size, insides(mechanism)
    table = np.zeros((n, n))
    cell_table = np.exp(kernel(mechanism.law, len(cells), mechanism.epsilon_prt).log_probabilities())
    for own, drawn in np.ndindex(len(cells), len(cells)):
        width = cells[drawn].stop - cells[drawn].start
        inner = np.exp(kernel(mechanism.law, width, mechanism.epsilon_ner).log_probabilities())
        for x in range(cells[own].start, cells[own].stop):
            centre = x - cells[own].start if drawn == own else 0 if drawn > own else width - 1
            table[x, cells[drawn]] = cell_table[own, drawn] * inner[centre]
    return table


def loss_curve(log_table: np.ndarray) -> np.ndarray:
    """The largest log-ratio of two rows at distance at most 0, 1, .. n - 1."""
    n = len(log_table)
    with np.errstate(invalid="ignore"):
        gaps = [np.abs(log_table[t:] - log_table[: n - t]) for t in range(1, n)]
    return np.maximum.accumulate([0.0, *(np.nanmax(gap) for gap in gaps)])


def p_value(outputs: np.ndarray, row: np.ndarray) -> float:
    """Chi-square p-value of outputs against a row of probabilities; the rare outputs share a bin of 20 or more."""
    counts, expected = np.bincount(outputs, minlength=len(row)), row * len(outputs)
    is_rare = expected < 20
    if expected[is_rare].sum() < 20:
        is_rare |= expected == expected[~is_rare].min()
    merged = [np.append(each[~is_rare], each[is_rare].sum()) for each in (counts, expected)]
    return float(chisquare(*merged).pvalue)


@given(any_maps)
@settings(max_examples=150, deadline=None)
def test_every_row_of_every_map_sums_to_one(mechanism):
    sums = np.exp(mechanism.log_probabilities()).sum(axis=1)
    assert sums == pytest.approx(np.ones(mechanism.domain.size), rel=ROUNDING)


@given(global_maps)
@settings(max_examples=50, deadline=None)
def test_the_global_map_is_its_law_on_the_whole_domain(mechanism):
    expected = kernel(mechanism.law, mechanism.domain.size, mechanism.epsilon)
    assert mechanism.kernel == expected
    assert (mechanism.log_probabilities() == expected.log_probabilities()).all()


@given(local_maps)
@settings(max_examples=60, deadline=None)
def test_the_local_map_is_the_law_inside_the_inputs_own_cell_and_impossible_outside(mechanism):
    table = mechanism.log_probabilities()
    for inside in insides(mechanism):
        law = kernel(mechanism.law, inside.stop - inside.start, mechanism.epsilon)
        assert (table[inside, inside] == law.log_probabilities()).all()
        assert (np.delete(table[inside], inside, axis=1) == -math.inf).all()


@given(adj_maps)
@settings(max_examples=60, deadline=None)
def test_the_adj_map_is_the_law_on_cells_and_then_the_law_in_the_drawn_cell(mechanism):
    assert np.exp(mechanism.log_probabilities()) == pytest.approx(adj_one_by_one(mechanism), rel=ROUNDING, abs=1e-300)


@given(any_maps, st.integers(0, 30))
@example(mechanism=WIDE_AMID_NARROW, t=13)
@settings(max_examples=200, deadline=None)
def test_the_reported_loss_is_the_enumerated_one_neither_exceeded_nor_loose(mechanism, t):
    curve = loss_curve(mechanism.log_probabilities())
    assert mechanism.loss(t) == pytest.approx(curve[min(t, len(curve) - 1)], rel=ROUNDING, abs=1e-11)


@given(even_adj_maps, st.integers(0, 60))
@settings(max_examples=200, deadline=None)
def test_the_loss_found_on_large_domains_by_looking_at_few_pairs_is_the_enumerated_one(mechanism, t):
    curve = loss_curve(mechanism.log_probabilities())
    assert mechanism.loss(t) == pytest.approx(curve[min(t, len(curve) - 1)], rel=ROUNDING, abs=1e-11)


# Over so many points every exponent of a weight below -745 underflows, and above 709 it would overflow.
wide_epsilons = st.floats(-8.5, 4).map(lambda log: 10**log)


@st.composite
def wide_maps(draw: st.DrawFn) -> GlobalMap | LocalMap | AdjMap:
    """Any budget, domain, width and share: of a size that no table can be made for."""
    n = draw(st.integers(2, 10**6))
    theta = draw(st.one_of(st.integers(1, min(n, 30)), st.integers(max(1, n // 30), n)))
    common = {"epsilon": draw(wide_epsilons), "domain": IntegerDomain(0, n - 1), "law": draw(laws)}
    match draw(st.sampled_from(["global", "local", "adj"])):
        case "global":
            return GlobalMap(**common)
        case "local":
            return LocalMap(**common, theta=theta)
    alpha = 10 ** draw(st.floats(-3, 3))
    common["epsilon"] = max(common["epsilon"], LEAST_EPSILON * (1 + alpha) * max(1, 1 / (alpha * theta)))
    return AdjMap(**common, theta=theta, alpha=alpha)


@given(wide_maps(), st.data())
@settings(max_examples=150, deadline=None)
def test_the_loss_of_every_map_is_a_finite_number_that_rises_with_the_distance(mechanism, data):
    loss = mechanism.loss_within if isinstance(mechanism, LocalMap) else mechanism.loss
    n = mechanism.domain.size
    distances = sorted({0, 1, n - 1, *data.draw(st.lists(st.integers(1, n - 1), max_size=2))})
    losses = [loss(t) for t in distances]
    assert all(map(math.isfinite, losses))
    assert losses[0] == 0
    assert losses == sorted(losses)


@given(local_maps)
@settings(max_examples=60, deadline=None)
def test_inside_a_cell_the_local_map_loses_exactly_what_it_reports(mechanism):
    table, n = mechanism.log_probabilities(), mechanism.domain.size
    worst = np.zeros(n)
    for inside in insides(mechanism):
        curve = loss_curve(table[inside, inside])
        worst = np.maximum(worst, np.append(curve, np.full(n - len(curve), curve[-1])))
    assert [mechanism.loss_within(t) for t in range(n)] == pytest.approx(worst, rel=ROUNDING, abs=1e-11)


@given(adj_maps)
@settings(max_examples=150, deadline=None)
def test_the_partition_bound_is_never_exceeded(mechanism):
    curve = loss_curve(mechanism.log_probabilities())
    assert all(mechanism.partition_bound(t) >= curve[t] - 1e-11 for t in range(len(curve)))


@given(adj_maps.filter(lambda mechanism: mechanism.theta is not None), st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_the_partition_bound_is_within_the_papers_with_the_ceiling(mechanism, t):
    borders = min(-(-t // mechanism.theta), mechanism.cells.n_cells - 1)
    papers = borders * mechanism.epsilon_prt + mechanism.theta * mechanism.epsilon_ner
    assert mechanism.partition_bound(t) <= mechanism.law.promise * papers * (1 + ROUNDING)


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize("kind", [GlobalMap, LocalMap, AdjMap])
def test_a_map_with_ten_percent_more_loss_is_caught_by_the_same_enumeration(kind, law):
    width = {} if kind is GlobalMap else {"theta": 7 if kind is AdjMap else 20}
    promised = kind(epsilon=0.5, domain=IntegerDomain(1, 20), law=law, **width)
    broken = kind(epsilon=0.55, domain=IntegerDomain(1, 20), law=law, **width)
    assert loss_curve(broken.log_probabilities())[1] > promised.loss(1) * 1.05


def test_the_clamped_law_attains_the_partition_bound_and_with_ten_percent_more_exceeds_it():
    promised = AdjMap(epsilon=0.5, domain=IntegerDomain(1, 20), theta=4, alpha=3)
    broken = replace(promised, epsilon=0.55)
    assert loss_curve(promised.log_probabilities())[-1] == pytest.approx(promised.partition_bound(19))
    assert loss_curve(broken.log_probabilities())[-1] > promised.partition_bound(19) * 1.05


@given(adj_maps)
@settings(max_examples=100, deadline=None)
def test_the_budget_of_the_adj_map_is_split_as_in_the_paper(mechanism):
    width = mechanism.theta or mechanism.domain.size / mechanism.cells.n_cells
    epsilon_ner = mechanism.epsilon / (mechanism.alpha + width / mechanism.domain.size)
    assert mechanism.epsilon_ner == pytest.approx(epsilon_ner, rel=1e-12)
    assert mechanism.epsilon_prt == pytest.approx(mechanism.alpha * width * epsilon_ner, rel=1e-12)


@pytest.mark.parametrize("law", list(Law))
def test_one_cell_or_cells_of_one_point_are_the_global_map(law):
    one_cell = AdjMap(epsilon=1, domain=HUNDRED, law=law, theta=100)
    one_point = AdjMap(epsilon=1, domain=HUNDRED, law=law, theta=1)
    local = LocalMap(epsilon=1, domain=HUNDRED, law=law, theta=100)
    for mechanism, epsilon in ((one_cell, one_cell.epsilon_ner), (one_point, one_point.epsilon_prt), (local, 1.0)):
        expected = GlobalMap(epsilon=epsilon, domain=HUNDRED, law=law)
        assert mechanism.log_probabilities() == pytest.approx(expected.log_probabilities(), abs=ROUNDING)
        assert mechanism.loss(7) == pytest.approx(expected.loss(7))


@given(any_maps, st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_outputs_never_leave_the_domain_nor_the_cell_of_a_local_map(mechanism, seed):
    codes = np.repeat(np.arange(mechanism.domain.lo, mechanism.domain.hi + 1), 20)
    released = mechanism.randomise(codes, rng=seeded(seed))
    assert released.dtype == np.int64
    possible = mechanism.log_probabilities()[codes - mechanism.domain.lo, released - mechanism.domain.lo] > -math.inf
    assert possible.all()


UNEVEN = Partition(IntegerDomain(-3, 16), (-3, -2, 4, 5, 12))
DRAWN = [
    GlobalMap(epsilon=0.3, domain=UNEVEN.domain, law="clamped"),
    GlobalMap(epsilon=0.3, domain=UNEVEN.domain, law="exponential"),
    LocalMap(epsilon=0.3, domain=UNEVEN.domain, law="calibrated", partition=UNEVEN),
    LocalMap(epsilon=0.3, domain=UNEVEN.domain, law="clamped", theta=6),
    AdjMap(epsilon=0.3, domain=UNEVEN.domain, law="clamped", partition=UNEVEN, alpha=0.5),
    AdjMap(epsilon=0.3, domain=UNEVEN.domain, law="bounded_laplace", theta=6),
]


@pytest.mark.parametrize("mechanism", DRAWN, ids=lambda mechanism: f"{mechanism.name}-{mechanism.law}")
def test_draws_follow_the_exact_table_and_those_with_ten_percent_more_loss_do_not(mechanism):
    """Chi-square of 200,000 draws at each of four inputs; see `FALSE_ALARM`.

    The twin draws with ten percent more budget, which the same test must catch at one input at least.
    """
    broken = replace(mechanism, epsilon=1.1 * mechanism.epsilon)
    table, inputs = np.exp(mechanism.log_probabilities()), (1, 6, 10, 19)
    lo, codes = mechanism.domain.lo, np.full(200_000, mechanism.domain.lo)
    kept = [p_value(mechanism.randomise(codes + x, rng=seeded(x)) - lo, table[x]) for x in inputs]
    caught = [p_value(broken.randomise(codes + x, rng=seeded(x)) - lo, table[x]) for x in inputs]
    assert min(kept) > FALSE_ALARM
    assert min(caught) < FALSE_ALARM


def test_a_column_of_several_chunks_is_drawn_row_by_row_and_leaves_the_input_alone():
    n, mechanism = 2 * CHUNK_VALUES + 1, GlobalMap(epsilon=5, domain=HUNDRED)
    codes = np.arange(n) % 100 + 1
    before = codes.copy()
    released = mechanism.randomise(codes, rng=seeded(3))
    assert (codes == before).all()
    assert np.abs(released - codes).max() < 8
    assert (released[:100] == mechanism.randomise(codes, rng=seeded(3))[:100]).all()


def test_an_infinite_budget_returns_the_codes_and_draws_no_bit():
    codes, rng = np.array([3, 1, 100]), seeded(1)
    options = {"epsilon": math.inf, "domain": HUNDRED}
    for mechanism in (GlobalMap(**options), LocalMap(**options, theta=9), AdjMap(**options, theta=9)):
        assert mechanism.randomise(codes, rng=rng).tolist() == codes.tolist()
        assert mechanism.loss(1) == math.inf
    assert rng.words(1) == seeded(1).words(1)


@pytest.mark.parametrize("codes", [[0], [101], [1, 2, 999], [1.0], [math.nan], [True]])
@pytest.mark.parametrize(
    "mechanism",
    [
        GlobalMap(epsilon=1, domain=HUNDRED),
        LocalMap(epsilon=1, domain=HUNDRED, theta=7),
        AdjMap(epsilon=1, domain=HUNDRED, theta=7),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_bad_codes_are_refused_before_any_bit_is_drawn(mechanism, codes):
    rng = seeded(1)
    with pytest.raises(ParameterError, match="Nothing was drawn"):
        mechanism.randomise(np.array(codes), rng=rng)
    assert rng.words(1) == seeded(1).words(1)


@pytest.mark.parametrize("kind", [GlobalMap, LocalMap, AdjMap])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"epsilon": -0.1}, "epsilon must be positive"),
        ({"epsilon": math.nan}, "epsilon must be positive"),
        ({"epsilon": "1"}, "epsilon must be positive"),
        ({"law": "gauss"}, "law must be one of clamped, exponential, calibrated, bounded_laplace"),
    ],
)
def test_a_bad_budget_or_law_is_refused_by_name_in_every_map(kind, change, words):
    width = {} if kind is GlobalMap else {"theta": 10}
    with pytest.raises(ParameterError, match=words):
        kind(**{"epsilon": 1, "domain": HUNDRED, **width, **change})


@pytest.mark.parametrize("kind", [LocalMap, AdjMap])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "either theta or a partition"),
        ({"theta": 2, "partition": Partition.of_width(HUNDRED, 2)}, "either theta or a partition"),
        ({"theta": 0}, "theta must be an integer between 1 and the 100 points"),
        ({"theta": 101}, "theta must be an integer"),
        ({"theta": 2.0}, "theta must be an integer"),
        ({"partition": UNEVEN}, "the partition divides"),
    ],
)
def test_cells_that_do_not_divide_the_domain_are_refused(kind, change, words):
    with pytest.raises(ParameterError, match=words):
        kind(epsilon=1, domain=HUNDRED, **change)


@pytest.mark.parametrize("starts", [(1, 2.5), (1, "a"), (True, 3)])
def test_edges_that_are_no_integers_are_refused(starts):
    with pytest.raises(ParameterError, match="edges of a partition must be integers"):
        Partition(IntegerDomain(1, 9), starts)
