"""The limit on what the operators of a TaskManager hold: option `max_state_memory`."""

from __future__ import annotations

from headgate.errors import StateMemoryExceeded
from headgate.operators.operator import Operator, OperatorContext


class StateMemory:
    """All accounts of one TaskManager; `limit` in bytes. Tasks look at theirs on threads of their own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._accounts: list[StateAccount] = []

    def open_account(self, operator: Operator, context: OperatorContext) -> StateAccount | None:
        """For an operator that holds something; None for others."""
        if type(operator).state_bytes is Operator.state_bytes:
            return None
        self._accounts.append(account := StateAccount(self, operator, context))
        return account

    def check(self) -> None:
        """Raises StateMemoryExceeded, with the place of the operator that holds the most."""
        held = sum(account.held for account in self._accounts)
        if held <= self._limit:
            return
        most = max(self._accounts, key=lambda account: account.held)
        keys = most.operator.state_keys()
        raise StateMemoryExceeded(
            f"the operators of its TaskManager hold {held} bytes, and max_state_memory is {self._limit}; {most.held} "
            f"of them are this one's, which has {keys} keys. Raise max_state_memory if there is memory, raise the "
            "parallelism over more TaskManagers, or have state end sooner (windows, allowed_lateness, ttl); with "
            'checkpoints, resume="latest" resumes from the last one. It is not started again by itself: it would come '
            "to the same point"
        ).at(operator=most.context.operator, subtask=most.context.subtask)


class StateAccount:
    """What one operator in one subtask holds."""

    def __init__(self, memory: StateMemory, operator: Operator, context: OperatorContext) -> None:
        self._memory = memory
        self.operator = operator
        self.context = context
        self.held = 0

    def look(self) -> None:
        """The operator has worked on something. Raises StateMemoryExceeded."""
        before, self.held = self.held, self.operator.state_bytes()
        if self.held > before:
            self._memory.check()

    def close(self) -> None:
        """It holds nothing any more."""
        self.held = 0
