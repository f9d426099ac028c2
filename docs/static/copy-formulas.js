// MathJax draws its letters where a selection cannot reach them: what is copied has the TeX source of formulas instead.
document.addEventListener("copy", (event) => {
  const selection = document.getSelection();
  if (!window.MathJax?.startup?.document || selection.isCollapsed) return;
  const sources = [...window.MathJax.startup.document.math]
    .filter((formula) => selection.containsNode(formula.typesetRoot, true))
    .map((formula) => (formula.display ? `$$${formula.math.trim()}$$` : `$${formula.math.trim()}$`));
  if (!sources.length) return;
  const copied = document.createElement("div");
  copied.append(selection.getRangeAt(0).cloneContents());
  const drawn = copied.querySelectorAll("mjx-container");
  drawn.forEach((formula, place) => formula.replaceWith(sources[place]));
  document.body.append(copied); // line breaks are known only of what is on the page
  event.clipboardData.setData("text/plain", drawn.length ? copied.innerText : sources[0]);
  copied.remove();
  event.preventDefault();
});
