// The version selector, and a button to copy each sample. versions.json is beside the folders of all versions, and written
// by deploy/site/build.py; without it, as in a build that is looked at from a file, there is one version.
const select = document.querySelector(".versions select");
const { root, page } = select.dataset;
const own = select.value;

async function listVersions() {
  if (location.protocol === "file:") return;
  const response = await fetch(`${root}../versions.json`);
  if (!response.ok) return;
  const versions = await response.json();
  select.replaceChildren(...versions.map((version) => new Option(version, version, false, version === own)));
}

select.addEventListener("change", async () => {
  const there = `${root}../${select.value}/`;
  const { ok } = await fetch(`${there}${page}.html`, { method: "HEAD" });
  location.href = ok ? `${there}${page}.html` : `${there}index.html`; // a page may be new
});

listVersions();

for (const sample of document.querySelectorAll("div.highlight")) {
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(sample.querySelector("pre").textContent.trimEnd());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  sample.append(button);
}
