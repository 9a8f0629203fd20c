"""
Deployments whose time is over while nobody watched: the next command of this computer ends them.
"""
