"""Enforces the option `max_state_memory`: the limit on the state of all operators of a TaskManager, in bytes."""

from __future__ import annotations

from headgate.errors import StateMemoryExceeded
from headgate.operators.operator import Operator, OperatorContext


class StateMemory:
    """The sizes of the operators' state in one TaskManager. `limit` is in bytes. Each task updates its accounts on its
    own thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._accounts: list[StateAccount] = []

    def open_account(self, operator: Operator, context: OperatorContext) -> StateAccount | None:
        """Return an account for an operator that reports the size of its state, or None for other operators."""
        if type(operator).state_bytes is Operator.state_bytes:
            return None
        self._accounts.append(account := StateAccount(self, operator, context))
        return account

    def check(self) -> None:
        """Check that all operators together do not hold more than the limit.

        Raises StateMemoryExceeded, which names the operator that holds the most.
        """
        held = sum(account.held for account in self._accounts)
        if held <= self._limit:
            return
        most = max(self._accounts, key=lambda account: account.held)
        keys = most.operator.state_keys()
        raise StateMemoryExceeded(
            f"the operators of its TaskManager hold {held} bytes, and max_state_memory is {self._limit} bytes; "
            f"{most.held} bytes are this operator's, which has {keys} keys or rows. Raise max_state_memory if there is "
            "memory, raise the parallelism over more TaskManagers, or let state end sooner (windows, allowed_lateness, "
            "ttl). "
            'With checkpoints, resume="latest" resumes from the last one. The job does not restart by itself: it would '
            "reach the limit again"
        ).at(operator=most.context.operator, subtask=most.context.subtask)


class StateAccount:
    """The size of one operator's state in one subtask, in bytes."""

    def __init__(self, memory: StateMemory, operator: Operator, context: OperatorContext) -> None:
        self._memory = memory
        self.operator = operator
        self.context = context
        self.held = 0

    def update(self) -> None:
        """Measure the operator's state after it has processed something. Raises StateMemoryExceeded."""
        before, self.held = self.held, self.operator.state_bytes()
        if self.held > before:
            self._memory.check()

    def close(self) -> None:
        """Set the size to 0, because the task closes the operator."""
        self.held = 0
