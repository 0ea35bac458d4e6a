"""What several submodules use: pieces, cells, blocks, trees."""
