"""What Google's limit of one change of an object a second costs the commands."""
