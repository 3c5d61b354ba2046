"""The bridge, with a real RabbitMQ."""
