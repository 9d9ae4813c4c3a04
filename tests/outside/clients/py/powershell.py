"""Parses each argument as a PowerShell command with the grammar of tree-sitter, because no PowerShell can be installed
from the package registries. Checks the syntax only."""

import sys

import tree_sitter_powershell
from tree_sitter import Language, Parser

parser = Parser(Language(tree_sitter_powershell.language()))
failed = 0
for command in sys.argv[1:]:
    if parser.parse(command.encode()).root_node.has_error:
        failed += 1
        print(f"FAIL {command}")
    else:
        print(f"ok {command}")
print(f"{len(sys.argv) - 1 - failed} passed, {failed} failed")
sys.exit(failed != 0)
