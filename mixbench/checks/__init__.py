"""Checks of a mixer before it is trained, for `mixbench check` and for pytest.

from mixbench.checks import check_mixer, mixer_checks

check_mixer(lambda: MyMixer(d_model=16, causal=True))


@mixer_checks(lambda: MyMixer(d_model=16, causal=True))
def test_my_mixer(check):
    check()
"""

from mixbench.checks.suite import Outcome, check_mixer, mixer_checks, run_checks

__all__ = ["Outcome", "check_mixer", "mixer_checks", "run_checks"]
