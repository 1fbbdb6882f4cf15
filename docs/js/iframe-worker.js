// Search runs in a worker, which browsers refuse to pages opened from disk: there a hidden frame
// stands in for it. Load this before the scripts of the theme.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source === this.inside) {
          this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        }
      });
      const page = this.inside.document;
      page.open();  // forgets what listened in the frame before
      this.ready = new Promise((resolve) => { this.inside.onload = resolve; });
      // What a worker has and a frame has not: answers go to the page, scripts are loaded in turn.
      page.write(
        '<html><body><script>window.postMessage = (data) => parent.postMessage(data, "*");' +
        "window.importScripts = (...all) => all.reduce((before, address) => before.then(() =>" +
        ' new Promise((resolve) => { const s = document.createElement("script"); s.src = address;' +
        " s.onload = resolve; document.body.append(s); })), Promise.resolve());<\/script>" +
        `<script src="${address}"><\/script></body></html>`,
      );
      page.close();
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(
        new MessageEvent("message", { data: structuredClone(data) })));
    }
    terminate() {}
  };
}
