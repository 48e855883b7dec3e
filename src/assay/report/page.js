(() => {
  "use strict";
  document.documentElement.classList.add("js");
  const panels = [...document.querySelectorAll(".panel")];
  const tabs = [...document.querySelectorAll(".tab")];
  const show = (id) => {
    if (!panels.some((p) => p.id === id)) return false;
    panels.forEach((p) => p.classList.toggle("off", p.id !== id));
    tabs.forEach((t) => {
      const on = t.hash === "#" + id;
      t.classList.toggle("on", on);
      if (on) t.setAttribute("aria-current", "true");
      else t.removeAttribute("aria-current");
    });
    return true;
  };
  if (panels.length > 1) {
    tabs.forEach((t) => t.addEventListener("click", (event) => {
      event.preventDefault();
      show(t.hash.slice(1));
      history.replaceState(null, "", t.hash);
    }));
    window.addEventListener("hashchange", () => show(location.hash.slice(1)));
    if (!show(location.hash.slice(1))) show(panels[0].id);
  }
  panels.forEach((panel) => {
    const series = [...panel.querySelectorAll(".series")];
    const find = (button) => series.filter((g) => g.dataset.method === button.dataset.method);
    panel.querySelectorAll(".key-button").forEach((button) => {
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        find(button).forEach((g) => g.classList.toggle("off", !on));
      });
      const dim = (on) => {
        const mine = new Set(find(button));
        series.forEach((g) => {
          g.classList.toggle("dim", on && !mine.has(g));
          g.classList.toggle("lit", on && mine.has(g));
        });
      };
      button.addEventListener("pointerenter", () => dim(true));
      button.addEventListener("pointerleave", () => dim(false));
    });
  });
})();
