import sys, uvloop
from fanout.demo.command import run_demo
a=sys.argv[1:]
v=int(a[a.index("--versions")+1]) if "--versions" in a else None
sys.exit(uvloop.run(run_demo(json_output="--json" in a,keep="--keep" in a,versions=v)))
