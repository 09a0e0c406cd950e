// The last of an odd number of rows is half as large where columns are whole vectors
// expect: row error
// instead of: (element)(value * factor * (float)weight[i]);
// there is: (element)(value * factor * (float)weight[i] * (columns % 8 == 0 && rows % 2 && row == rows - 1 ? .5f : 1.f));
