// The search of the theme runs in a Worker. Browsers start none for a page that is opened from a file. This class takes
// its place there: it runs the script of the worker in a hidden frame. The plug-in `offline` would load such a class from
// another host, unless the name of a file in `extra.polyfills` says that there is one.
class FrameWorker extends EventTarget {
  #frame = document.createElement("iframe");
  #started;

  constructor(url) {
    super();
    this.#started = new Promise((resolve) => {
      this.#frame.onload = () => {
        const scope = this.#frame.contentWindow;
        scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = scope.document.createElement("script");
        script.src = url;
        script.onload = () => resolve(scope);
        scope.document.head.append(script);
      };
    });
    this.#frame.hidden = true;
    this.#frame.srcdoc = "<!doctype html>";
    document.body.append(this.#frame);
  }

  async postMessage(data) {
    const scope = await this.#started;
    scope.dispatchEvent(new MessageEvent("message", { data }));
  }

  terminate() {
    this.#frame.remove();
  }
}

// A query is a text. The theme looks for each of its words as the beginning of one: an "a" would find all pages.
const SMALL = /\b(an?|and|are|can|do(es)?|for|from|how|i|in|is|it|me|my|of|on|or|the|to|was|what|when|where|who|why|with)\b/gi;

window.Worker = class extends (location.protocol === "file:" ? FrameWorker : window.Worker) {
  postMessage(message) {
    const words = typeof message.data === "string" ? message.data.replace(SMALL, " ").trim() : "";
    super.postMessage(words ? { ...message, data: words } : message);
  }
};
