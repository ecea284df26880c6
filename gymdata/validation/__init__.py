"""What is wrong with rows: findings, the rules that make them, reports and repairs."""
