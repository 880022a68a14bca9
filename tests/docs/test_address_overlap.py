"""Which read and write neighbourhoods meet, from addresses where that is known; the command."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import nn

from docs.results.lattice.address_overlap import OverlapLogger, address_overlap, main, spread
from mixbench.datasets.mqar import MQAR
from mixbench.mixers.lattice import Lattice
from mixbench.ops.spline import spline_neighbourhood
from mixbench.runs.run import run
from tests.conftest import TINY

# Three pairs; position 6 asks for the second one, 8 for the first, 10 for the third.
TOKENS = torch.tensor([[3, 9, 5, 8, 4, 7, 5, 0, 3, 0, 4, 0]])
X = torch.zeros(1, 12, 4)
CONTENT = torch.zeros(1, 12, 2, 2)


def lattice(write, read, q=CONTENT, k=CONTENT, **knobs):
    """A lattice with these addresses `[B, T, 2]`, queries and keys `[B, T, H, K]`."""
    mixer = Lattice(d_model=4, causal=True, **knobs)
    mixer.conv = nn.Identity()
    mixer.addresses = lambda x: (write, read)
    mixer.content = lambda x: (q, k, None)
    return mixer


def apart():
    """Every token writes to a place of its own and reads where nothing is."""
    write = 100.0 * torch.arange(12)[None, :, None].expand(1, 12, 2)
    return write.clone(), torch.full((1, 12, 2), -100.0)


def met(write, read, **knobs):
    """Matching and other share at +1, +2, +3."""
    found = address_overlap(lattice(write, read, **knobs), X, TOKENS, num_pairs=3)
    assert [m.offset for m in found] == [1, 2, 3]
    return np.array([(m.matching, m.other) for m in found])


def test_all_meet_in_one_place_and_none_apart():
    one = torch.zeros(1, 12, 2)
    assert (met(one, one) == 1).all()
    assert (met(*apart()) == 0).all()


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        # The second pair's +1 is the first one's +3, and so on.
        (1, [(2 / 3, 0), (0, 0), (0, 1 / 6)]),
        (2, [(0, 0), (2 / 3, 0), (0, 0)]),
        (3, [(0, 2 / 6), (0, 0), (2 / 3, 0)]),
    ],
)
def test_two_of_three_queries_read_at_an_offset_of_their_pair(offset, expected):
    write, read = apart()
    read[0, 6], read[0, 8] = write[0, 2 + offset], write[0, 0 + offset]
    assert met(write, read) == pytest.approx(np.array(expected))


@pytest.mark.parametrize(
    ("read_mode", "away", "meets"),
    [
        ("all", (2.4, -2.4), True),
        ("all", (2.6, 0.0), False),
        ("all", (0.0, -2.6), False),
        ("nearest", (1.4, -1.4), True),
        ("nearest", (0.0, 1.6), False),
    ],
)
def test_neighbourhoods_overlap_by_whole_cells(read_mode, away, meets):
    write, read = apart()
    write += 0.4  # in the same cells
    read[0, 10] = write[0, 5].round() + torch.tensor(away)
    assert met(write, read, read_mode=read_mode)[0] == pytest.approx([meets / 3, 0])


def test_cosines_are_of_the_head_that_tells_pairs_apart():
    east, north = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    q = 3 * torch.stack([east, north]).expand(1, 12, 2, 2)
    k = torch.stack([east, east]).repeat(1, 12, 1, 1)  # the first head: 1 for all pairs
    tokens = TOKENS.clone()
    tokens[0, 8], tokens[0, 10] = 0, 0  # only the second pair is asked for
    k[0, 3, 1] = torch.tensor([0.8, 0.6])
    found = address_overlap(lattice(*apart(), q, k), X, tokens, num_pairs=3)
    cosines = np.array([(m.cosine_matching, m.cosine_other) for m in found])
    # At +2 no head tells them apart. Position 3 is also the first pair's +3, one of two others.
    assert cosines == pytest.approx(np.array([(0.6, 0), (1, 1), (0, 0.3)]))


def test_spread_is_that_of_the_values_writes():
    write, read = torch.randn(1, 12, 2), torch.randn(1, 12, 2)
    write[0, [1, 3, 5]] = torch.tensor([[0.0, 7.0], [3.0, 7.0], [6.0, 7.0]])
    assert spread(lattice(write, read), X, num_pairs=3) == pytest.approx(6**0.5 / 2)


@torch.no_grad()
def test_shares_and_cosines_agree_with_loops():
    """Query by query with sets of cells, for rows of the dataset and a lattice as it is made."""
    K = 4
    task = MQAR(vocab_size=32, seq_len=24, num_pairs=K, num_train=8, num_valid=1, num_test=1)
    rows = task.generate("train", 0)
    torch.manual_seed(0)
    mixer = Lattice(d_model=8, causal=True, num_heads=1, addr_scale=4.0)
    x = torch.randn(8, 24, 8)
    write, read = (spline_neighbourhood(a)[0].tolist() for a in mixer.addresses(mixer.conv(x)))
    q, k, _ = mixer.content(mixer.conv(x))
    for found in address_overlap(mixer, x, torch.from_numpy(rows.inputs), K):
        hits, cosines = {True: [], False: []}, {True: [], False: []}
        for b, t in zip(*(rows.targets != -100).nonzero(), strict=True):
            for pair in range(K):
                own = rows.inputs[b, 2 * pair] == rows.inputs[b, t]
                at = 2 * pair + found.offset
                hits[own].append(bool(set(map(tuple, read[b][t])) & set(map(tuple, write[b][at]))))
                cosines[own].append(torch.cosine_similarity(q[b, t, 0], k[b, at, 0], dim=0))
        shares = [sum(hits[own]) / len(hits[own]) for own in (True, False)]
        assert [found.matching, found.other] == pytest.approx(shares)
        assert 0 < found.other < 1
        means = [float(torch.stack(cosines[own]).mean()) for own in (True, False)]
        assert [found.cosine_matching, found.cosine_other] == pytest.approx(means, abs=1e-6)


def test_the_log_looks_at_every_epoch_and_layer_and_leaves_the_run_alone(settings):
    arguments = ("mixer=lattice", "dataset=mqar", "epochs=2")
    log = OverlapLogger()
    watched = run(settings(*arguments), [log]).result
    assert [(row.step, row.layer) for row in log.rows] == [(4, 1), (4, 2), (8, 1), (8, 2)]
    assert log.rows[-1].accuracy == watched.metrics["valid/accuracy"]
    alone = run(settings(*arguments, "rerun=all"), []).result
    assert alone.metrics == watched.metrics


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def command(*overrides):
        monkeypatch.setattr(sys, "argv", ["lattice_meeting", *overrides])
        code = 0
        try:
            main()
        except SystemExit as exit_:
            code = exit_.code
        return code, *capsys.readouterr()

    return command


def test_the_command_trains_and_shows_a_table(call, tmp_path):
    tiny = ["mixer=lattice", "dataset=mqar", *TINY]
    for _ in range(2):  # a record that is there is made anew
        code, out, err = call(*tiny, "epochs=2")
        assert (code, err) == (0, "")
        lines = [line.split("│")[1:-1] for line in out.splitlines() if line.startswith("│")]
        assert [(line[0].strip(), line[2].strip()) for line in lines] == [
            ("4", "1"),
            ("4", "2"),
            ("8", "1"),
            ("8", "2"),
        ]
        assert all(cell.count("/") == 1 for line in lines for cell in line[3:9])
    (folder,) = (tmp_path / "outputs" / "meetings" / "runs").iterdir()
    assert (folder / "result.json").exists()
    assert (folder / ".hydra" / "overrides.yaml").read_text().startswith("- mixer=lattice\n")


def test_a_run_that_diverges_says_so(call):
    code, _, err = call("mixer=lattice", "dataset=mqar", *TINY, "lr=1e30")
    assert code == 1
    assert err.startswith("mixbench: the run diverged: step ")


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["mixer=attention"], "mixer: expected lattice, got attention"),
        (
            ["mixer=lattice", "mixer.one_cell=true"],
            "mixer.one_cell: expected false: one cell has no addresses, got true",
        ),
        (["mixer=lattice", "dataset=forecasting"], "dataset: expected mqar, got forecasting"),
        (
            ["mixer=lattice", "dataset.num_pairs=1"],
            "dataset.num_pairs: expected at least 2: a matching and another pair, got 1",
        ),
        (["mixer=lattice", "seed=-1"], "seed: expected at least 0, got -1"),
        (["mixer=lattice", "sed=1"], "sed: expected one of the keys "),
        (["--help"], "override: expected key=value, got --help"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(call, tmp_path, overrides, line):
    code, out, err = call(*overrides)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"mixbench: {line}")
    assert not any(tmp_path.iterdir())
