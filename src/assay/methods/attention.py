"""What attention passes on: rollout and its descendants."""
