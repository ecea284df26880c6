"""What an environment is: NeMo Gym config YAML, composed, checked and typed; and the environments that come with gymdata."""
