#!/bin/sh
# What an installed package must do, with the commands under $1; run in a scratch folder.
set -e
bin=$1
"$bin/latentmdp" --version
"$bin/latentmdp" make treatment --horizon 4 --out model.npz
"$bin/latentmdp" info model.npz
"$bin/latentmdp" plan model.npz --gap 0.05 --out plan.npz --plot plan.svg
"$bin/latentmdp" explain model.npz --policy plan.npz --state mild --out table.md
"$bin/latentmdp" explorer plan.npz --out explorer.html
"$bin/latentmdp" simulate model.npz --policy uniform --episodes 50 --out logs.parquet
"$bin/latentmdp" info logs.parquet
"$bin/latentmdp" convert model.npz model.pomdpx
"$bin/python" - <<'END'
from importlib.resources import files

import latentmdp as lm

package = files("latentmdp")
assert (package / "py.typed").is_file()
assert (package / "report" / "templates" / "policy_page.js").is_file()
assert "site-packages" in str(package), package
assert lm.load("model.pomdpx") == lm.load("model.npz")
END
