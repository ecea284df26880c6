"""From tasks to rewards: rollouts collected, measured, chosen from."""
