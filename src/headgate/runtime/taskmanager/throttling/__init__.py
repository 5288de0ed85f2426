"""The throttles of a TaskManager: each connects the policy of a mechanism to tasks, links and clocks."""
