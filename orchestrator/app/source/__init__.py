"""Find, pack and upload what machines get: code, data and agent."""
