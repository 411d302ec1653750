"""Functions that make panels, rows and dashboards in Grafana's JSON.

A dashboard file (overview.py, ...) only says what to show. Expressions may use four variables: `$namespace` and
`$run` (one run), `$instance` (any number of its processes), and `$window` (the time over which slow events, such as
steps, are averaged).
"""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24

# Units as Grafana spells them.
SECONDS, BYTES, BYTES_PER_SECOND, RATIO, COUNT, PER_SECOND = "s", "bytes", "Bps", "percentunit", "short", "cps"
PLAIN = "none"

# Selects the chosen run. Two namespaces may have runs of the same name. Without namespaces, series lack the label,
# Grafana has no value for the variable and inserts nothing, and `namespace=""` selects the series that lack the label.
RUN = 'namespace="$namespace", run="$run"'
PROCESS = f'{RUN}, instance=~"$instance"'

GREEN, YELLOW, RED, TRANSPARENT = "green", "yellow", "red", "transparent"


def thresholds(first, *steps):
    """Returns steps of colour: thresholds("red", (1, "green")) is red below 1 and green from 1 on."""
    return {"mode": "absolute", "steps": [{"color": first, "value": None}, *({"color": c, "value": v} for v, c in steps)]}


def query(expr, legend, form="time_series", instant=False):
    return {"expr": expr, "legendFormat": legend, "format": form, "instant": instant, "range": not instant}


def firing(more=""):
    """Returns the query of the firing alerts: those of the chosen run, of a process of its namespace, and of no run at
    all (a GPU's)."""
    alerts = ", ".join(['alertstate="firing", system="dapd"', *([more] if more else [])])
    return f'ALERTS{{{alerts}, namespace="$namespace", run=~"$run|"}} or ALERTS{{{alerts}, run="", job!~"dapd-.+"}}'


def quantiles(histogram, selector, by=""):
    """Returns the queries of a histogram's p50, p95 and p99, one set for each value of the label `by`."""
    labels = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    rate = f"sum by ({labels}) (rate({histogram}_bucket{{{selector}}}[$window]))"
    return [query(f"histogram_quantile({q}, {rate})", f"p{round(100 * q)}{legend}") for q in (0.5, 0.95, 0.99)]


def panel(kind, title, description, queries, *, width, height, unit, options, custom=None, defaults=None):
    fields = {"unit": unit, "color": {"mode": "palette-classic"}, "thresholds": thresholds(GREEN), "mappings": [], **(defaults or {})}
    if custom:
        fields["custom"] = custom
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "gridPos": {"w": width, "h": height},
        "fieldConfig": {"defaults": fields, "overrides": []},
        "options": options,
        "targets": [{"refId": chr(ord("A") + i), "datasource": DATASOURCE, **target} for i, target in enumerate(queries)],
    }


def graph(title, description, unit, *queries, width=8, height=8, stack=False, low=0, high=None, logarithmic=False):
    """Returns a panel of lines over time; stacked lines are filled."""
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 40 if stack else 8,
        "showPoints": "auto",
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
        "scaleDistribution": {"type": "log", "log": 10} if logarithmic else {"type": "linear"},
    }
    defaults = {name: value for name, value in (("min", low), ("max", high)) if value is not None}
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel("timeseries", title, description, queries, width=width, height=height, unit=unit, options=options,
                 custom=custom, defaults=defaults)


def stat(title, description, unit, value, *, width=4, height=4, levels=None, decimals=None):
    """Returns a panel of one number, coloured by `levels` if there are any."""
    defaults = {"color": {"mode": "thresholds"}, "thresholds": levels or thresholds("text")}
    if decimals is not None:
        defaults["decimals"] = decimals
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "background" if levels else "value",
        "graphMode": "none",
        "textMode": "value",
        "justifyMode": "auto",
        "orientation": "auto",
    }
    return panel("stat", title, description, [value], width=width, height=height, unit=unit, options=options, defaults=defaults)


def gauge(title, description, value, *, width=4, height=4):
    """Returns a panel of a ratio from 0 to 1."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showThresholdLabels": False,
        "showThresholdMarkers": False,
        "orientation": "auto",
    }
    defaults = {"min": 0, "max": 1, "color": {"mode": "thresholds"}, "thresholds": thresholds("blue")}
    return panel("gauge", title, description, [value], width=width, height=height, unit=RATIO, options=options, defaults=defaults)


def bars(title, description, unit, *queries, width=8, height=8):
    """Returns a panel with the newest values side by side."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "displayMode": "basic",
        "valueMode": "color",
        "orientation": "horizontal",
        "showUnfilled": True,
        "minVizWidth": 0,
        "minVizHeight": 10,
    }
    return panel("bargauge", title, description, queries, width=width, height=height, unit=unit, options=options, defaults={"min": 0})


def heatmap(title, description, unit, histogram, selector, *, width=8, height=8):
    """Returns a panel that shows how often each bucket was hit."""
    target = query(f"sum by (le) (increase({histogram}_bucket{{{selector}}}[$__rate_interval]))", "{{le}}", form="heatmap")
    options = {
        "calculate": False,
        "color": {"mode": "scheme", "scheme": "Oranges", "fill": "dark-orange", "exponent": 0.5, "steps": 64, "reverse": False,
                  "scale": "exponential"},
        "cellGap": 1,
        "cellValues": {"unit": COUNT},
        "yAxis": {"unit": unit, "axisPlacement": "left", "reverse": False},
        "rowsFrame": {"layout": "auto"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "tooltip": {"show": True, "yHistogram": False},
        "showValue": "never",
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
    }
    return panel("heatmap", title, description, [target], width=width, height=height, unit=unit, options=options)


def timeline(title, description, target, *, colour, width=24, height=6):
    """Returns a panel with a bar wherever a 0/1 series is 1."""
    options = {
        "mergeValues": True,
        "showValue": "never",
        "alignValue": "left",
        "rowHeight": 0.8,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    levels = thresholds(TRANSPARENT, (1, colour))
    return panel("state-timeline", title, description, [target], width=width, height=height, unit=PLAIN, options=options,
                 custom={"fillOpacity": 80, "lineWidth": 0}, defaults={"color": {"mode": "thresholds"}, "thresholds": levels})


def table(title, description, target, hidden, *, width=24, height=8):
    """Returns a panel with one row per series, whose labels are the columns, without those in `hidden`."""
    result = panel("table", title, description, [{**target, "format": "table"}], width=width, height=height, unit=PLAIN,
                   options={"showHeader": True, "cellHeight": "sm"})
    exclude = {name: True for name in ("Time", "Value", "__name__", *hidden)}
    result["transformations"] = [{"id": "organize", "options": {"excludeByName": exclude}}]
    return result


def variable(name, label, values, **more):
    return {"type": "query", "name": name, "label": label, "datasource": DATASOURCE, "refresh": 2, "sort": 1, "hide": 0,
            "query": {"query": values, "refId": f"variable-{name}"}, **more}


def window_variable():
    choices = ["1m", "5m", "15m", "1h", "6h"]
    default = "5m"
    options = [{"text": c, "value": c, "selected": c == default} for c in choices]
    return {"type": "interval", "name": "window", "label": "Average over", "query": ",".join(choices), "hide": 0, "refresh": 2,
            "current": {"text": default, "value": default, "selected": True}, "options": options, "auto": False, "auto_count": 30, "auto_min": "10s"}


def place(rows):
    """Places the rows' panels side by side from left to right, with a header above each row, and numbers everything."""
    placed, y = [], 0
    for title, members in rows:
        placed.append({"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}})
        y, x, tallest = y + 1, 0, 0
        for member in members:
            size = member["gridPos"]
            if x + size["w"] > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            placed.append({**member, "gridPos": {"x": x, "y": y, **size}})
            x, tallest = x + size["w"], max(tallest, size["h"])
        y += tallest
    return [{"id": number, **member} for number, member in enumerate(placed, 1)]


def linked(uid, title, description, variables, panels):
    """Returns a dashboard with links to the others."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["dapd"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [{"type": "dashboards", "title": "DAPD", "tags": ["dapd"], "asDropdown": False, "includeVars": True, "keepTime": True,
                   "targetBlank": False, "icon": "external link", "tooltip": "", "url": ""}],
        "templating": {"list": variables},
        "annotations": {"list": []},
        "panels": panels,
    }


def dashboard(uid, title, description, rows):
    """Returns a dashboard for one run, which its variables choose."""
    variables = [
        {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus", "refresh": 1, "hide": 0},
        variable("namespace", "Namespace", "label_values(dapd_build_info, namespace)"),
        variable("run", "Run", 'label_values(dapd_build_info{namespace="$namespace"}, run)'),
        variable("instance", "Instance", f"label_values(dapd_build_info{{{RUN}}}, instance)", multi=True, includeAll=True,
                 allValue=".*", current={"text": ["All"], "value": ["$__all"], "selected": True}),
        window_variable(),
    ]
    return linked(uid, title, description, variables, place(rows))
