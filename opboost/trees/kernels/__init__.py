"""Every compiled loop of the tree core, and nothing else: one module per step of growing a tree.

Bins are column-major, ``bins[column, row]``. A row's gradient is one 64-bit word, g in the low and h in the high bits
(`packing`). The rows of a node are contiguous: ``rows[place]`` is a row's number and ``gradients[place]`` its gradient;
dividing a node moves both. Sums are int64 and hence exact: threads share rows or columns in any way without changing a
result.
"""

import os

# Read when OpenMP is loaded, at the first parallel loop: threads that wait leave their core to others. Beside busy
# processes, active waiting made training 10 times slower (79 s against 8).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
