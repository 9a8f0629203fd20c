"""
What runs on the machines, shipped as one zipapp.

Python 3.8 or newer, standard library only; imports nothing of ours but `contract`.
"""
