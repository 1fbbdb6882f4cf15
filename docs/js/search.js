// Search over the pages of the site, without a server: search/search_index.js holds all texts.
(function () {
  "use strict";
  const results = document.getElementById("mkdocs-search-results");
  const field = document.getElementById("mkdocs-search-query");
  if (!results || !field) return;

  const MOST = 30; // results shown
  const AROUND = 110; // characters of a text before and after what was found

  const words = (text) => text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || [];

  // How well an entry fits: every word must occur; titles count more than texts, starts of words
  // more than their middles.
  function score(entry, wanted) {
    let total = 0;
    for (const word of wanted) {
      const title = weigh(entry.title, word);
      const text = weigh(entry.text, word);
      if (title + text === 0) return 0;
      total += 10 * title + text;
    }
    return total;
  }

  function weigh(text, word) {
    const place = text.indexOf(word);
    if (place < 0) return 0;
    const begins = new RegExp("(^|[^\\p{L}\\p{N}])" + word, "u").test(text);
    const whole = new RegExp("(^|[^\\p{L}\\p{N}_])" + word + "($|[^\\p{L}\\p{N}_])", "u").test(text);
    return whole ? 3 : begins ? 2 : 1;
  }

  function excerpt(text, wanted) {
    const small = text.toLowerCase();
    const places = wanted.map((word) => small.indexOf(word)).filter((place) => place >= 0);
    const begin = Math.max(0, (places.length ? Math.min(...places) : 0) - AROUND);
    const cut = text.slice(begin, begin + 2 * AROUND);
    return (begin > 0 ? "… " : "") + cut + (begin + 2 * AROUND < text.length ? " …" : "");
  }

  function show(entries) {
    const wanted = words(field.value);
    const found = wanted.length
      ? entries
          .map((entry) => [score(entry, wanted), entry])
          .filter(([points]) => points > 0)
          .sort((one, other) => other[0] - one[0])
          .slice(0, MOST)
      : [];
    results.replaceChildren();
    for (const [, entry] of found) {
      const article = document.createElement("article");
      const heading = document.createElement("h3");
      const link = document.createElement("a");
      link.href = base_url + "/" + entry.location;
      link.textContent = entry.shown;
      heading.append(link);
      const text = document.createElement("p");
      text.textContent = excerpt(entry.plain, wanted);
      article.append(heading, text);
      results.append(article);
    }
    if (!found.length) {
      const none = document.createElement("p");
      none.textContent = wanted.length ? "Nothing was found." : "Type what you look for.";
      results.append(none);
    }
  }

  function begin() {
    const entries = window.searchIndex.map(([location, shown, plain]) => ({
      location, shown, plain, title: shown.toLowerCase(), text: plain.toLowerCase(),
    }));
    field.value = new URLSearchParams(window.location.search).get("q") || "";
    field.addEventListener("input", () => show(entries));
    field.form.addEventListener("submit", (event) => event.preventDefault());
    show(entries);
  }

  const script = document.createElement("script");
  script.src = base_url + "/search/search_index.js";
  script.onload = begin;
  script.onerror = () => { results.textContent = "The search index is missing."; };
  document.body.append(script);
})();
