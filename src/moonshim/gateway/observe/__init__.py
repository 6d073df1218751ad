"""What happens in the gateway -> logs, metrics and stream logs."""
