"""Prints tests/golden/slices.txt: slices of N records as the datasets library (5.2.0) takes them."""

from datasets.arrow_reader import ReadInstruction

SPECS = ["[:10%]", "[10%:]", "[:1000]", "[1000:]", "[-5%:]", "[:-5%]", "[-10:]", "[:-10]", "[25%:75%]", "[10:20]", "[:50%]", "[1%:2%]",
         "[:]", "[0:0]", "[5:3]", "[-1000:5]", "[:1_000]", "[10:20%]", "[:100%]", "[-100%:-50%]", "[33%:34%]", "[:1%]"]

for n in (1, 5, 7, 10, 50, 150, 250, 999, 1001, 123457):
    for spec in SPECS:
        part = ReadInstruction.from_spec("train" + spec).to_absolute({"train": n})[0]
        print("train" + spec, n, part.from_, part.to)
