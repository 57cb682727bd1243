from __future__ import annotations
import os
from hypothesis import given, strategies as st
@given(st.integers())
def test_it(n):
    with open("/tmp/seen","a") as f: f.write(f"{n} ")
    assert not (os.environ.get("FAILS") and n > 1000)
