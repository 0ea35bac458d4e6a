// The list of versions lies beside the pages, wherever these lie. A page that is opened as a file
// may not read it: it then shows its own version, and asks for nothing.
(() => {
  const options = DOCUMENTATION_OPTIONS, root = document.documentElement.dataset.content_root;
  if (location.protocol !== "file:") {
    options.theme_switcher_json_url = new URL(`${root}_static/versions.json`, location).href;
    return;
  }
  delete options.theme_switcher_json_url;
  document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll(".version-switcher__button")) {
      button.textContent = options.theme_switcher_version_match;
      button.disabled = true;
    }
  });
})();
