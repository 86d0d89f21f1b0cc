/* Copyright: the baremetal.dgx authors
   SPDX-License-Identifier: GPL-3.0-or-later */

/* Opens the racks of a large cluster's heat maps, and filters the findings. Texts are only ever
   put in as text. */
(function () {
  'use strict';
  var data = JSON.parse(document.getElementById('data').textContent);

  function shade(map, value) {
    var step = 0;
    while (step < map.cut.length && value >= map.cut[step]) step++;
    return 'q' + step;
  }

  function cellOf(map, node, gpu) {
    var cell = document.createElement('td');
    var value = (map.values[node] || [])[gpu];
    if (value === undefined || value === null) {
      cell.className = 'none';
      cell.textContent = '\u00b7';
      cell.title = 'no figure';
    } else {
      var bad = (map.failed[node] || []).indexOf(gpu) >= 0;
      cell.className = bad ? 'fail' : shade(map, value);
      cell.textContent =
        (bad ? '\u2717 ' : '') + value.toLocaleString('en', { maximumFractionDigits: 1 });
    }
    return cell;
  }

  function rowOf(map, node) {
    var row = document.createElement('tr');
    var head = document.createElement('th');
    row.className = 'of';
    head.scope = 'row';
    head.textContent = node;
    row.appendChild(head);
    for (var gpu = 0; gpu < map.wide; gpu++) row.appendChild(cellOf(map, node, gpu));
    return row;
  }

  document.addEventListener('click', function (event) {
    var button = event.target.closest('button.row');
    if (!button) return;
    var row = button.closest('tr');
    var open = button.getAttribute('aria-expanded') === 'true';
    button.setAttribute('aria-expanded', String(!open));
    if (open) {
      while (row.nextElementSibling && row.nextElementSibling.className === 'of')
        row.nextElementSibling.remove();
      return;
    }
    data.racks[button.dataset.rack].forEach(function (node) {
      var line = rowOf(data.maps[button.dataset.map], node);
      row.after(line);
      row = line;
    });
  });

  var filter = document.getElementById('filter');
  if (filter)
    filter.addEventListener('input', function () {
      var word = filter.value.toLowerCase();
      var shown = 0;
      document.querySelectorAll('.node').forEach(function (node) {
        var any = false;
        var name = node.querySelector('h3').textContent.toLowerCase();
        node.querySelectorAll('.finding').forEach(function (one) {
          var hit = name.indexOf(word) >= 0 || one.textContent.toLowerCase().indexOf(word) >= 0;
          one.hidden = !hit;
          if (hit) {
            any = true;
            shown++;
          }
        });
        node.hidden = !any;
      });
      document.getElementById('filtered').textContent = word ? shown + ' shown' : '';
    });
})();
