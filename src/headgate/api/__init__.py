"""The API for users. Its calls build a plan, and pass the plan to the runtime."""
