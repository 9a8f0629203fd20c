"""
Run jobs on the machines; shipped as one zipapp.

Python 3.8 or newer, standard library only; of ours it imports nothing but `contract`.
"""
