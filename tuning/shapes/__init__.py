"""Other numbers of nodes and ranks than those measured: what task costs tell of them."""
