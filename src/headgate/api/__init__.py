"""The API for users: its calls build a plan and give it to the runtime."""
