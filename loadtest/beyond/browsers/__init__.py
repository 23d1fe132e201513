"""pushup.js in real browsers behind HAProxy, while something fails: browsers x fronts x transports x faults.

| file | contents |
|---|---|
| `experiment` | which scenes are played, and their tables |
| `scenarios` | what happens in them |
| `scene` | tabs of a browser that follow a channel |
| `stage` | the cluster, the site with the page, and who publishes |
| `verdict` | what was lost, and how soon a tab was current again |
| `proxies` | proxies that are in the way |
| `drivers` | the browsers |
| `webdriver` | Chromium and WebKitGTK |
| `firefox` | Firefox |
| `processes` | which process runs a page |

`site/` has the page, and the loop that most people write.
"""
