"""Explain a decision, write the policy as a table, and as a page for people who do not program."""

import latentmdp as lm

model = lm.make("treatment")
policy = lm.HSVI(gap=0.01, time_limit=20).plan(model).policy

told = lm.explain(model, policy, "mild")
print(told)

lm.report.decision_table(model, policy).write("table.md")
lm.plot.policy(told).figure.savefig("decision.svg")
lm.report.write_explorer(policy, "explorer.html", title="Treatment of a chronic disease")
print("\nwritten: table.md, decision.svg, explorer.html")
