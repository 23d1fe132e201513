"""The command of the outbox: `commands`."""
