"""Phases of agent-init in a task of Inspect, for the sandbox of compose.yaml.

    Task(
        dataset=...,
        setup=[prepared("pip install --user numpy"), phase("run")],
        solver=react(tools=[bash(user="agent")]),
        scorer=checked("python3 -m pytest -q /home/agent/tests"),
        sandbox=("docker", "compose.yaml"),
    )
"""

from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import solver
from inspect_ai.util import sandbox

AGENT_INIT = "/usr/local/bin/agent-init"


async def enter(name):
    """Enter a phase. It is in force, and proved, or this raises: all is sealed then."""
    r = await sandbox().exec([AGENT_INIT, "phase", name], user="root", timeout=180)
    if not r.success:
        raise RuntimeError(f"phase {name}: {r.stdout}{r.stderr}")


@solver
def prepared(command):
    async def solve(state, generate):
        r = await sandbox().exec(["sh", "-c", command], user="agent")
        if not r.success:
            raise RuntimeError(f"set-up: {r.stderr}")
        return state

    return solve


@solver
def phase(name):
    async def solve(state, generate):
        await enter(name)
        return state

    return solve


@scorer(metrics=[accuracy()])
def checked(command):
    async def score(state, target):
        await enter("verify")
        r = await sandbox().exec(["sh", "-c", command], user="agent")
        return Score(value=1 if r.success else 0, explanation=r.stdout + r.stderr)

    return score
