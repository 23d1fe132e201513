// The loop that most people write: docs/guide/http.md had it until there was pushup.js.
export async function follow(url, channels, take, {cursor = "now", ...options} = {}) {
  for (let ticket = "";;) {
    try {
      const query = new URLSearchParams([...channels.map(c => ["channel", c]), ["cursor", cursor]]);
      const headers = ticket ? {"PushUp-Ticket": ticket} : {};
      const response = await fetch(`${url}/v1/poll?${query}`, {...options, headers, signal: AbortSignal.timeout(90000)});
      const {status} = response;
      if (status === 401 && ticket) { ticket = ""; continue; }                  // expired: poll again, without it
      if (status >= 400 && status < 500 && status !== 408 && status !== 429) return response;
      if (!response.ok) throw new Error(`PushUp answered ${status}`);
      const answer = await response.json();
      cursor = answer.cursor;
      ticket = answer.ticket ?? ticket;
      for (const gap of answer.gaps) console.warn("missed messages on", gap.channel, gap.reason);
      for (const message of answer.messages) take(message);
    } catch (error) {
      console.error(error);
      await new Promise(resolve => setTimeout(resolve, 1000 + 4000 * Math.random()));
    }
  }
}
